package main

import (
	"fmt"
	"os"

	"github.com/coredns/caddy"
	_ "github.com/coredns/coredns/core/dnsserver" // the server type "dns"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

// serveNames answers DNS queries as the configuration file that the first argument names says, until it is killed.
func serveNames() int {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: node coredns COREFILE")
		return 2
	}
	content, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server, err := caddy.Start(caddy.CaddyfileInput{Filepath: os.Args[1], Contents: content, ServerTypeName: "dns"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server.Wait()
	return 0
}
