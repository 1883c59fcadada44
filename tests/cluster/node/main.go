// Command node holds every program of a one-node Kubernetes cluster: the first argument says which of them it is.
//
// One program links the packages that the control plane, the kubelet and kube-proxy share once, so it takes a third of
// the time and of the disk space that seven programs take.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func() int{
	"coredns":                 serveNames,
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllers.NewControllerManagerCommand),
	"kube-proxy":              command(proxy.NewProxyCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
}

func main() {
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		names := make([]string, 0, len(programs))
		for name := range programs {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: node PROGRAM [FLAG...], where PROGRAM is one of: %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	run := programs[os.Args[1]]
	os.Args = os.Args[1:]
	os.Exit(run())
}

// command makes a program of a function that builds a Cobra command.
func command(build func() *cobra.Command) func() int {
	return func() int { return cli.Run(build()) }
}
