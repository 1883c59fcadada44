// Command obedient is a process of a pod that ends in the way that a test says: it listens on a port for one line.
//
// "exit N" ends it with an exit code. "allocate" uses memory until the kernel kills it. SIGTERM ends it with exit code 0.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

const port = ":7070"

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		os.Exit(0)
	}()
	listener, err := net.Listen("tcp", port)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	connection, err := listener.Accept()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	line, _ := bufio.NewReader(connection).ReadString('\n')
	fmt.Println("ordered:", strings.TrimSpace(line))
	words := strings.Fields(line)
	if len(words) == 2 && words[0] == "exit" {
		code, _ := strconv.Atoi(words[1])
		os.Exit(code)
	}
	var memory [][]byte
	for {
		block := make([]byte, 1<<20)
		for i := range block {
			block[i] = 1
		}
		memory = append(memory, block)
	}
}
