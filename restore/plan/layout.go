package plan

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Layout is how the restored cluster shall look.
type Layout struct {
	// Members are all members; none: those of the backup, without its learners.
	Members []Member
	// OwnURLs are what the member in Into.Name will advertise; they must be its URLs among Members. None: not checked.
	OwnURLs []string
	// Token is the initial-cluster-token; "": it is derived from everything that the members must have in common, so that
	// restores of one member each, on several hosts, form one cluster.
	Token string
	// Salt makes a derived token one that no other restore gets.
	Salt string
	Bump string // "auto", "" (the same), or a number of revisions
	// Known is the newest revision that clients have seen outside of the catalog, such as a live cluster's; 0: none.
	Known int64
	Into  Into

	KeepAlarms   bool
	AllowCorrupt bool
	OldIsDead    bool
}

// WorkPrefix begins the names of the directories in which restores are built.
const WorkPrefix = ".dr-restore-"

// ParseMembers reads etcd's --initial-cluster form, name=url,name=url. Each name may stand once: a name that stands
// twice is nearly always a slip, so a member with two URLs must come from the backup itself.
func ParseMembers(initialCluster string) ([]Member, error) {
	var members []Member
	for part := range strings.SplitSeq(initialCluster, ",") {
		name, peerURL, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || name == "" || peerURL == "" {
			return nil, fmt.Errorf("%w: --initial-cluster: %q is not name=url", ErrLayout, part)
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
			return fmt.Errorf("%w: member %s is there twice: give each its own name with --initial-cluster name=url,…",
				ErrLayout, m.Name)
		}
		names[m.Name] = true
		if err := validMember(m); err != nil {
			return err
		}
		for _, u := range m.PeerURLs {
			if other := urls[u]; other != "" {
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
		if err := validPeerURL(u); err != nil {
			return fmt.Errorf("%w: member %s: %w", ErrLayout, m.Name, err)
		}
	}
	return nil
}

// validPeerURL repeats text only once it is known to hold no password. A comma would begin another member in the
// --initial-cluster form.
func validPeerURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.Contains(text, ","):
		return errors.New("its peer URL does not parse: use https://host:port")
	case u.User != nil:
		return errors.New("its peer URL holds credentials, which etcd takes nowhere: use https://host:port")
	}
	return validAddress(u)
}

// validAddress accepts what etcd accepts for a peer URL (client/pkg/types, NewURLs).
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

func (p *Plan) setMembers(c catalog.Catalog, l Layout) error {
	p.Members = slices.Clone(l.Members)
	if len(p.Members) == 0 {
		p.Members = voters(p.Old.Members)
		p.noteMembers(c)
	}
	if len(p.Members) == 0 {
		p.Members = l.onlyMember(p.File)
	}
	p.Members = sorted(p.Members)
	if len(l.OwnURLs) > 0 {
		return p.ownURLs(p.nameOf(l.Into), l.OwnURLs)
	}
	return nil
}

// onlyMember returns the one member of a new cluster where nothing names the members: by name and URL, or for a file as etcdutl
// has it, which takes a data dir alone; none if neither is there.
func (l Layout) onlyMember(file string) []Member {
	name, urls := l.Into.Name, l.OwnURLs
	if name == "" && file != "" && l.Into.DataDir != "" {
		name = "default"
		if len(urls) == 0 {
			urls = []string{"http://localhost:2380"}
		}
	}
	if name == "" || len(urls) == 0 {
		return nil
	}
	return []Member{{Name: name, PeerURLs: urls}}
}

// noteMembers notes what a person should know of members that nobody has chosen. A restored membership has voters only.
func (p *Plan) noteMembers(c catalog.Catalog) {
	for _, m := range p.Old.Members {
		if m.Learner {
			p.note("learner %s is left out: add it again when the cluster runs", m.Name)
		}
	}
	if i := slices.IndexFunc(c.Backups, func(b catalog.Backup) bool { return b.ID == p.Old.Backup }); i >= 0 {
		p.noteLaterMembers(c, c.Backups[i])
	}
}

func (p *Plan) ownURLs(name string, own []string) error {
	m, ok := p.member(name)
	if !ok {
		return fmt.Errorf("%w: --initial-advertise-peer-urls is for the member in --name, and %q is not among the members",
			ErrLayout, name)
	}
	if !slices.Equal(slices.Sorted(slices.Values(own)), slices.Sorted(slices.Values(m.PeerURLs))) {
		return fmt.Errorf("%w: member %s would advertise %s, but is %s among the members: etcd would not start",
			ErrLayout, name, strings.Join(own, ","), strings.Join(m.PeerURLs, ","))
	}
	return nil
}

// nameOf returns the member whose data dir into.DataDir is: without a name, the only one.
func (p Plan) nameOf(into Into) string {
	if into.Name == "" && into.DataDir != "" && len(p.Members) == 1 {
		return p.Members[0].Name
	}
	return into.Name
}

func (p Plan) member(name string) (Member, bool) {
	i := slices.IndexFunc(p.Members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return Member{}, false
	}
	return p.Members[i], true
}

// Validate says what is wrong with p, if anything is. Errors match ErrLayout.
func (p Plan) Validate() error {
	if err := p.validateCut(); err != nil {
		return err
	}
	into := p.Into
	switch {
	case into.WALDir != "" && into.DataDir == "":
		return fmt.Errorf("%w: --wal-dir is for one member: give its --data-dir too", ErrLayout)
	case into.OutputDir == "" && into.Name == "" && into.DataDir == "":
		return nil // a plan for other hosts
	case into.OutputDir != "" && (into.Name != "" || into.DataDir != ""):
		return fmt.Errorf("%w: --output-dir takes all members, --name and --data-dir one: use one or the other",
			ErrLayout)
	case into.OutputDir == "" && into.Name == "":
		return fmt.Errorf("%w: --data-dir takes one member: choose it with --name (%s)", ErrLayout, p.InitialCluster())
	case into.OutputDir == "" && into.DataDir == "":
		return fmt.Errorf("%w: --name and --data-dir go together", ErrLayout)
	}
	if into.Name != "" {
		if _, ok := p.member(into.Name); !ok {
			return fmt.Errorf("%w: --name %s is not among the members (%s)", ErrLayout, into.Name, p.InitialCluster())
		}
	}
	return into.validatePaths()
}

func (i Into) validatePaths() error {
	for _, path := range []string{i.Target(), i.WALDir} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("%w: %s is not an absolute path", ErrLayout, path)
		}
	}
	if i.WALDir != "" && (isWithin(i.WALDir, i.DataDir) || isWithin(i.DataDir, i.WALDir)) {
		return fmt.Errorf("%w: --wal-dir %s and --data-dir %s: neither may be in the other, each is put into place as a whole",
			ErrLayout, i.WALDir, i.DataDir)
	}
	return nil
}

// isWithin reports whether path is dir or below it.
func isWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

func (p Plan) validateCut() error {
	bases := 0
	for _, there := range []bool{p.Backup != nil, p.File != "", p.Salvage != nil && p.Salvage.Database != nil} {
		if there {
			bases++
		}
	}
	if bases != 1 {
		return fmt.Errorf("%w: a plan has one base: a backup, a file, or a disk's database", ErrLayout)
	}
	if p.Backup != nil {
		if err := p.Backup.Validate(); err != nil {
			return fmt.Errorf("%w: backup: %w", ErrLayout, err)
		}
	}
	if p.Bump.By < 0 || p.Bump.To < 0 || p.Bump.Known < 0 {
		return fmt.Errorf("%w: a revision can only be bumped up", ErrLayout)
	}
	return validMembers(p.Members)
}

// InitialCluster is the members in etcd's --initial-cluster form.
func (p Plan) InitialCluster() string {
	var parts []string
	for _, m := range p.Members {
		for _, u := range m.PeerURLs {
			parts = append(parts, m.Name+"="+u)
		}
	}
	return strings.Join(parts, ",")
}

// Target returns the directory that the run puts into place.
func (i Into) Target() string {
	if i.OutputDir != "" {
		return filepath.Clean(i.OutputDir)
	}
	return filepath.Clean(i.DataDir)
}

// DataDirs returns the data dirs that this host gets.
func (p Plan) DataDirs() []DataDir {
	if p.Into.OutputDir == "" {
		m, _ := p.member(p.Into.Name)
		return []DataDir{{Member: m}}
	}
	var all []DataDir
	for _, m := range p.Members {
		all = append(all, DataDir{Member: m, Folder: m.Name})
	}
	return all
}

// DataDir is that of one member: a folder in Into.Target, or "" for the target itself.
type DataDir struct {
	Member
	Folder string
}
