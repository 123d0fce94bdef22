package foreign

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// clientURLs returns client URLs of etcd that resolve in every namespace, each once.
func (o *object) clientURLs(path string, theirs []string) (ours []string, err error) {
	for _, text := range theirs {
		u, err := parseEndpoint(path, text, "http")
		if err != nil {
			return nil, err
		}
		full := o.inNamespace(u)
		if !slices.Contains(ours, full) {
			ours = append(ours, full)
		}
		if full == u.String() && strings.Count(u.Hostname(), ".") == 1 && !addressPattern.MatchString(u.Hostname()) {
			o.note("%s is read as SERVICE.NAMESPACE. If it is POD.SERVICE, append .%s.svc to the host.", full, o.Metadata.Namespace)
		}
	}
	return ours, nil
}

// parseEndpoint parses a scheme, a host and a port. Without a scheme it has a default.
func parseEndpoint(path, text, scheme string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = scheme + "://" + text
	}
	u, err := url.Parse(strings.TrimSuffix(strings.TrimSpace(text), "/"))
	if err != nil || !isEndpoint(u) { // the error does not repeat the text, which may contain a password
		return nil, fmt.Errorf("%s has a URL that cannot be used: write http:// or https://, a host and, if needed, a port", path)
	}
	u.Host = strings.ToLower(u.Host)
	return u, nil
}

// isEndpoint reports whether a URL has nothing but http or https, a host, and a port or none.
func isEndpoint(u *url.URL) bool {
	isHTTP := u.Scheme == "http" || u.Scheme == "https"
	return isHTTP && u.Hostname() != "" && u.User == nil && u.Path == "" && u.RawQuery == "" && u.Fragment == ""
}

var (
	addressPattern = regexp.MustCompile(`^[0-9.]+$|:`)
	labelPattern   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	// suffix is what follows the name of the Service in that of a pod: of a StatefulSet, or of coreos' operator.
	suffix = regexp.MustCompile(`^-([0-9]+|[a-z0-9]{10})$`)
)

// inNamespace completes the host of an endpoint, if it is the name of a Service or of a pod, to one that resolves in every namespace. It returns
// other URLs as they are.
func (o *object) inNamespace(u *url.URL) string {
	pod, service, isPod := strings.Cut(u.Hostname(), ".")
	isShort := labelPattern.MatchString(pod) && !addressPattern.MatchString(pod) && pod != "localhost"
	isOfPod := isPod && strings.HasPrefix(pod, service) && suffix.MatchString(strings.TrimPrefix(pod, service))
	if !isShort || isPod && !isOfPod {
		return u.String()
	}
	full := *u
	full.Host = strings.Replace(u.Host, u.Hostname(), u.Hostname()+"."+o.Metadata.Namespace+".svc", 1)
	o.note("%s becomes %s: the operator of dr may run in another namespace.", u, &full)
	return full.String()
}
