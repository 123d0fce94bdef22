package cluster

import (
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// Client returns a client for the API server that runs in the test's own process: kubectl is a process for each request. It has no limit of
// requests. The kubeconfig is that of an administrator; "" means the cluster's own.
func (c *Cluster) Client(t testing.TB, kubeconfig string) dynamic.Interface {
	t.Helper()
	if kubeconfig == "" {
		kubeconfig = c.access("admin.kubeconfig")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Dial, config.QPS = c.Dial, -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
