// Command pause is the first process of every pod in a test cluster: it keeps the pod's namespaces, and reaps processes.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	signal.Ignore(syscall.SIGCHLD) // the kernel then reaps them
	<-ends
}
