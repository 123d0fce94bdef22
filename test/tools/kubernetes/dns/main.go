// Command dns is the DNS of a test cluster: it resolves the names of Services, and of the ready pods of headless Services with a
// hostname, also from their addresses (PTR). All other names do not exist.
//
// CoreDNS would do, but its dependencies have all of Kubernetes compiled a second time.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	address := flag.String("listen", "127.0.0.1:53", "address for UDP and TCP")
	kubeconfig := flag.String("kubeconfig", "", "access to the API server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, *address, *kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "dns:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It listens only once it knows all Services.
func run(ctx context.Context, address, kubeconfig string) error {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	z := &zone{services: factory.Core().V1().Services().Lister(), slices: factory.Discovery().V1().EndpointSlices().Lister()}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var group errgroup.Group
	for _, network := range []string{"udp", "tcp"} {
		server := &dns.Server{Addr: address, Net: network, Handler: z}
		group.Go(server.ListenAndServe)
		context.AfterFunc(ctx, func() { server.Shutdown() })
	}
	return group.Wait()
}

// zone answers from the informers' caches.
type zone struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
}

func (z *zone) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	reply := new(dns.Msg).SetReply(request)
	reply.Authoritative, reply.RecursionAvailable = true, true
	question := request.Question[0]
	addresses, exists := z.resolve(question.Name)
	names := z.names(question.Name)
	if !exists && len(names) == 0 {
		reply.Rcode = dns.RcodeNameError
	}
	for _, name := range names {
		if question.Qtype == dns.TypePTR {
			header := dns.RR_Header{Name: question.Name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: 1}
			reply.Answer = append(reply.Answer, &dns.PTR{Hdr: header, Ptr: name})
		}
	}
	for _, address := range addresses {
		ip := net.ParseIP(address).To4()
		if question.Qtype == dns.TypeA && ip != nil {
			header := dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}
			reply.Answer = append(reply.Answer, &dns.A{Hdr: header, A: ip})
		}
	}
	w.WriteMsg(reply)
}

// resolve returns the addresses of SERVICE.NAMESPACE or HOSTNAME.SERVICE.NAMESPACE below svc.cluster.local, and whether the name exists.
func (z *zone) resolve(name string) (addresses []string, exists bool) {
	below, ok := strings.CutSuffix(strings.ToLower(name), ".svc.cluster.local.")
	parts := strings.Split(below, ".")
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return nil, false
	}
	slices.Reverse(parts)
	namespace, service := parts[0], parts[1]
	found, err := z.services.Services(namespace).Get(service)
	if err != nil {
		return nil, false
	}
	if len(parts) == 3 {
		addresses = z.ready(namespace, service, parts[2])
		return addresses, len(addresses) > 0
	}
	if found.Spec.ClusterIP != "None" {
		return []string{found.Spec.ClusterIP}, true
	}
	return z.ready(namespace, service, ""), true
}

// names returns the names of the ready endpoints with a hostname whose address has the name reverse, such as 2.1.18.198.in-addr.arpa.
func (z *zone) names(reverse string) (names []string) {
	all, err := z.slices.List(labels.Everything())
	if err != nil || !strings.HasSuffix(reverse, ".in-addr.arpa.") {
		return nil
	}
	for _, slice := range all {
		for _, e := range slice.Endpoints {
			if isReady(e) && e.Hostname != nil && slices.ContainsFunc(e.Addresses, func(a string) bool { return isReverse(reverse, a) }) {
				names = append(names, strings.Join([]string{*e.Hostname, slice.Labels[discovery.LabelServiceName], slice.Namespace, "svc.cluster.local."}, "."))
			}
		}
	}
	return names
}

// isReverse reports whether name is that of an address for the reverse lookup.
func isReverse(name, address string) bool {
	reverse, err := dns.ReverseAddr(address)
	return err == nil && reverse == strings.ToLower(name)
}

func isReady(e discovery.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// ready returns the addresses of a Service's ready endpoints; with a hostname, only those of that name.
func (z *zone) ready(namespace, service, hostname string) (addresses []string) {
	all, err := z.slices.EndpointSlices(namespace).List(labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: service}))
	if err != nil {
		return nil
	}
	for _, slice := range all {
		for _, e := range slice.Endpoints {
			if isReady(e) && (hostname == "" || e.Hostname != nil && *e.Hostname == hostname) {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	return addresses
}
