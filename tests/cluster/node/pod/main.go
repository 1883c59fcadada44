// Command pod is the only program in the image that the cluster's own tests run. It is also the program of the sandbox
// container that holds a pod's network namespace.
//
// Without arguments it waits until it is told to stop. "pod allocate MEBIBYTES" uses that much memory first.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	var memory []byte
	switch {
	case len(os.Args) == 1:
	case len(os.Args) == 3 && os.Args[1] == "allocate":
		mebibytes, err := strconv.Atoi(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		memory = make([]byte, mebibytes<<20)
		for i := 0; i < len(memory); i += os.Getpagesize() {
			memory[i] = 1
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: pod [allocate MEBIBYTES]")
		os.Exit(2)
	}
	fmt.Println("running")
	<-stop
	_ = memory
}
