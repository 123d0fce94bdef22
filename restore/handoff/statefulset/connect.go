package statefulset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Access is how to reach an API server, as kubectl's flags have it.
type Access struct {
	Kubeconfig string // file; "": as kubectl finds it, or the service account of the pod
	Context    string // "": the current one
	Namespace  string // "": that of the context
}

// API is a connection to an API server.
type API struct {
	Client    client.Client // does not cache
	Namespace string
	config    *rest.Config
}

// Connect returns the connection that a describes. It sends no request. The error matches fault.Usage.
func Connect(a Access) (*API, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: a.Context}
	overrides.Context.Namespace = a.Namespace
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: no access to an API server: name a file with --kubeconfig: %w", fault.Usage, err)
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return nil, fmt.Errorf("%w: no namespace: name one with --namespace: %w", fault.Usage, err)
	}
	config.QPS = -1 // one restore asks less than the API server's own limits allow
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme} {
		err := add(scheme)
		if err != nil {
			return nil, err
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("%w: the API server cannot be used: check --kubeconfig and --context: %w", fault.Usage, err)
	}
	return &API{Client: c, Namespace: namespace, config: config}, nil
}
