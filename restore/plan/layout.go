package plan

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Layout describes the restored cluster.
type Layout struct {
	// Members are all members; none: those of the backup, without its learners.
	Members []Member
	// OwnURLs are the URLs that the member in Into.Name will advertise; they must equal its URLs among Members. None: not checked.
	OwnURLs []string
	// Token is the initial-cluster-token; "": one derived from everything that the members must have in common, so that hosts that
	// restore one member each form one cluster.
	Token string
	Salt  string // makes a derived token unique to this restore; "": hosts with the same data and members derive the same token
	Bump  string // "auto", "" (the same), or a number of revisions
	Known int64  // the newest revision known outside of the catalog, such as a live cluster's; 0: none
	Into  Into

	KeepAlarms   bool
	AllowCorrupt bool
	OldIsDead    bool
}

// WorkPrefix begins the names of the directories in which restores are built.
const WorkPrefix = ".dr-restore-"

// Member is one member of the restored cluster.
type Member struct {
	Name     string   `json:"name"`
	PeerURLs []string `json:"peerURLs"`
}

// Into selects the members whose data dirs this host gets, and their place.
type Into struct {
	OutputDir string `json:"outputDir,omitempty"` // for all members, one folder each
	Name      string `json:"name,omitempty"`      // of the only member that this host gets
	DataDir   string `json:"dataDir,omitempty"`   // of that member
	WALDir    string `json:"walDir,omitempty"`    // for its log, as etcd's --wal-dir; "": in the data dir
}

// ParseMembers parses etcd's --initial-cluster form, name=url,name=url. It refuses a name that occurs twice, which is nearly always
// a mistake: a member with two URLs must come from the backup.
func ParseMembers(initialCluster string) ([]Member, error) {
	var members []Member
	for part := range strings.SplitSeq(initialCluster, ",") {
		name, peerURL, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || name == "" || peerURL == "" {
			return nil, fmt.Errorf("%w: --initial-cluster: %q is not name=url: use name=url,…", ErrLayout, part)
		}
		members = append(members, Member{Name: name, PeerURLs: []string{peerURL}})
	}
	return members, validMembers(members)
}

func validMembers(members []Member) error {
	if len(members) == 0 {
		return fmt.Errorf("%w: no members: name them with --initial-cluster name=url,…", ErrLayout)
	}
	names, urls := map[string]bool{}, map[string]string{}
	for _, m := range members {
		if names[m.Name] {
			return fmt.Errorf("%w: two members are called %s: give each its own name with --initial-cluster name=url,…",
				ErrLayout, m.Name)
		}
		names[m.Name] = true
		err := validMember(m)
		if err != nil {
			return err
		}
		for _, u := range m.PeerURLs {
			other := urls[u]
			if other != "" {
				return fmt.Errorf("%w: members %s and %s both have peer URL %s: give each its own with --initial-cluster",
					ErrLayout, other, m.Name, u)
			}
			urls[u] = m.Name
		}
	}
	return nil
}

func validMember(m Member) error {
	// The next restore into the same directory would remove a folder named like a work dir.
	if m.Name == "" || m.Name == "." || m.Name == ".." || strings.ContainsAny(m.Name, "/\\=,\x00") ||
		strings.HasPrefix(m.Name, WorkPrefix) {
		return fmt.Errorf("%w: member name %q cannot be a folder's name: name all members with --initial-cluster name=url,…",
			ErrLayout, m.Name)
	}
	if len(m.PeerURLs) == 0 {
		return fmt.Errorf("%w: member %s has no peer URL: name all members with --initial-cluster name=url,…",
			ErrLayout, m.Name)
	}
	for _, u := range m.PeerURLs {
		err := validPeerURL(u)
		if err != nil {
			return fmt.Errorf("%w: member %s: %w", ErrLayout, m.Name, err)
		}
	}
	return nil
}

// validPeerURL does not repeat text in an error before it knows that text contains no password. A comma would begin another
// member in the --initial-cluster form.
func validPeerURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.Contains(text, ","):
		return errors.New("its peer URL is malformed: use https://host:port")
	case u.User != nil:
		return errors.New("its peer URL contains credentials, which etcd does not accept: use https://host:port")
	}
	return validAddress(u)
}

// validAddress accepts the same peer URLs as etcd (client/pkg/types, NewURLs).
func validAddress(u *url.URL) error {
	_, _, err := net.SplitHostPort(u.Host)
	switch {
	case u.Scheme == "unix" || u.Scheme == "unixs":
		return nil
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("peer URL %s: the scheme must be http, https, unix or unixs", u)
	case err != nil:
		return fmt.Errorf("peer URL %s does not have the form https://host:port", u)
	case u.Path != "":
		return fmt.Errorf("peer URL %s must not contain a path", u)
	}
	return nil
}
