package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// serviceFlags holds the address of a dr serve and the client's credentials.
type serviceFlags struct {
	server, tokenFile, cacert, cert, key string
}

func (a *app) trigger() *cobra.Command {
	var f serviceFlags
	var job, reason string
	cmd := &cobra.Command{
		Use:   "trigger",
		Short: "Make a dr serve start a job now",
		Long: `trigger makes a dr serve take a backup, prune or drill, and does not wait for the end: dr status and the service's page show
the result. The job is subject to the same leases and limits as scheduled jobs.`,
		Example: `  dr trigger --cluster prod --reason "before the upgrade to 3.7"
  dr trigger --cluster prod --job drill --server https://dr.example.com:2391 --token-file token --cacert ca.crt`,
		Args: noArgs,
	}
	a.clusterFlag(cmd)
	cmd.Flags().StringVar(&job, "job", "backup", "backup, prune or drill")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown with the job; a backup stores it as its label trigger")
	f.add(cmd, a.getenv)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if a.cluster == "" {
			return usagef("no cluster: name it with --cluster or DR_CLUSTER")
		}
		var ordered document.QueuedJob
		path := "/api/v1/clusters/" + url.PathEscape(a.cluster) + "/trigger"
		err := f.post(cmd.Context(), path, map[string]string{"job": job, "reason": reason}, &ordered)
		if err != nil {
			return err
		}
		if a.output == "json" {
			return a.document(ordered)
		}
		a.printf("%s of cluster %s was accepted: %s\n", ordered.Job, ordered.Cluster, ordered.Reason)
		return nil
	}
	return cmd
}

func (f *serviceFlags) add(cmd *cobra.Command, getenv func(string) string) {
	flags := cmd.Flags()
	server := getenv("DR_SERVER")
	if server == "" {
		server = "http://127.0.0.1:2391"
	}
	flags.StringVar(&f.server, "server", server, "URL of dr serve (DR_SERVER)")
	flags.StringVar(&f.tokenFile, "token-file", getenv("DR_TOKEN_FILE"), "file with a token of the role operate (DR_TOKEN_FILE)")
	flags.StringVar(&f.cacert, "cacert", "", "file with the CA of the service's certificate (default: the system's CAs)")
	flags.StringVar(&f.cert, "cert", "", "client certificate of the role operate")
	flags.StringVar(&f.key, "key", "", "key of --cert")
}

// serviceWait bounds a request: the service responds as soon as it has recorded the job.
const serviceWait = 30 * time.Second

// post sends v as JSON to path, and decodes the response into answer.
func (f *serviceFlags) post(ctx context.Context, path string, v, answer any) error {
	base, client, err := f.client()
	if err != nil {
		return err
	}
	sent, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, serviceWait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base.JoinPath(path).String(), bytes.NewReader(sent))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if f.tokenFile != "" {
		token, err := secretFile(f.tokenFile)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("dr serve is unreachable: %w: check that it runs, and --server", err)
	}
	defer response.Body.Close()
	return readAnswer(base, response, answer)
}

// maxAnswer bounds the size of a response, in bytes.
const maxAnswer = 1 << 20

// readAnswer decodes a successful response into answer, and returns the error that any other response reports.
func readAnswer(base *url.URL, response *http.Response, answer any) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("dr serve at %s: %w", base, err)
	}
	if response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusMultipleChoices {
		err = json.Unmarshal(body, answer)
		if err != nil {
			return fmt.Errorf("dr serve at %s: the response is not JSON: check --server: %w", base, err)
		}
		return nil
	}
	var problem document.Problem
	if json.Unmarshal(body, &problem) != nil || problem.Message == "" {
		return fmt.Errorf("the server at %s responded %s, not as a dr serve: check --server", base, response.Status)
	}
	if problem.Cure != "" {
		problem.Message += ": " + problem.Cure
	}
	return withKind(response.StatusCode, fmt.Errorf("dr serve at %s: %s", base, problem.Message))
}

// withKind returns err with the kind that fits the response's status. The kind determines the exit code.
func withKind(status int, err error) error {
	switch status {
	case http.StatusBadRequest:
		return fault.Mark(fault.Usage, err)
	case http.StatusNotFound:
		return fault.Mark(fault.NotFound, err)
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict: // a conflict: suspended, or not possible
		return fault.Mark(fault.Refused, err)
	}
	return err
}

// client returns the service's URL and a client that follows no redirects, so that the token reaches no other server.
func (f *serviceFlags) client() (*url.URL, *http.Client, error) {
	base, err := url.Parse(f.server)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" {
		return nil, nil, usagef("--server: use a form like https://host:2391")
	}
	if base.Scheme == "http" && f.tokenFile != "" && !isLoopback(base.Hostname()) {
		return nil, nil, usagef("--server %s: a token is not sent over a plain connection: use https", base)
	}
	secure, err := f.tls()
	if err != nil {
		return nil, nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = secure
	return base, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func (f *serviceFlags) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.cacert != "" {
		pem, err := os.ReadFile(f.cacert)
		if err != nil {
			return nil, usagef("--cacert: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--cacert %s: contains no PEM certificate: name a file of PEM certificates", f.cacert)
		}
	}
	if f.cert != "" || f.key != "" {
		cert, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, usagef("--cert and --key: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
