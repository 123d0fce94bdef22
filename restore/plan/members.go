package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// chooseMembers returns the members of the restored cluster, sorted by name. They are those of l, else the voters of the old cluster,
// else the only member that l names.
func chooseMembers(l Layout, file string, old []catalog.Member) ([]Member, error) {
	members := slices.Clone(l.Members)
	if len(members) == 0 {
		members = voters(old)
	}
	if len(members) == 0 {
		members = l.onlyMember(file)
	}
	members = sorted(members)
	if len(l.OwnURLs) == 0 {
		return members, nil
	}
	return members, l.checkOwnURLs(members)
}

// onlyMember returns the member that l names with its URLs; none if l names none. For a plain file a data dir is enough, as for
// etcdutl: the member is called default.
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

// checkOwnURLs refuses own URLs that differ from those of the member in Into.Name: etcd would not start.
func (l Layout) checkOwnURLs(members []Member) error {
	name := l.Into.Name
	if name == "" && l.Into.DataDir != "" && len(members) == 1 {
		name = members[0].Name
	}
	i := slices.IndexFunc(members, named(name))
	if i < 0 {
		return fmt.Errorf("%w: --initial-advertise-peer-urls is for the member in --name, and %q is not among the members: name one of --initial-cluster",
			ErrLayout, name)
	}
	if !sameURLs(l.OwnURLs, members[i].PeerURLs) {
		return fmt.Errorf("%w: member %s would advertise %s, but is %s among the members: etcd would not start: use the same URLs in both",
			ErrLayout, name, strings.Join(l.OwnURLs, ","), strings.Join(members[i].PeerURLs, ","))
	}
	return nil
}

// memberNotes returns notes on members that come from the old cluster.
func memberNotes(c catalog.Catalog, l Layout, p Plan) (notes []string) {
	if len(l.Members) > 0 {
		return nil
	}
	for _, m := range p.Old.Members {
		if m.Learner {
			notes = append(notes, fmt.Sprintf("learner %s is left out: add it again when the cluster runs", m.Name))
		}
	}
	i := slices.IndexFunc(c.Backups, func(b catalog.Backup) bool { return b.ID == p.Old.Backup })
	if i < 0 {
		return notes
	}
	return slices.Concat(notes, laterMembers(c, c.Backups[i]), logMember(c, p, c.Backups[i]))
}

// logMember returns a note if the last segment that the plan replays was read from a member that source does not name. The plan has
// its members from source, because the log does not contain the membership.
func logMember(c catalog.Catalog, p Plan, source catalog.Backup) []string {
	last, ok := lastSegment(c, p.Log)
	if !ok || last.Member == "" || !last.Written.After(source.Started) ||
		slices.ContainsFunc(source.Members, func(m catalog.Member) bool { return m.ID == last.Member }) {
		return nil
	}
	return []string{fmt.Sprintf("the log was last read from member %s, which is not among the members of backup %s: members were replaced "+
		"after that backup, and the log does not contain their URLs: name the members with --initial-cluster", last.Member, source.ID)}
}

// lastSegment returns the last segment that l replays. It is not ok if l is nil.
func lastSegment(c catalog.Catalog, l *Log) (s catalog.Segment, ok bool) {
	if l == nil {
		return s, false
	}
	for _, lineage := range c.Lineages {
		i := slices.IndexFunc(lineage.Segments, func(s catalog.Segment) bool { return s.Seq == l.Last })
		if lineage.ID == l.Lineage && i >= 0 {
			return lineage.Segments[i], true
		}
	}
	return s, false
}

// laterMembers returns a note if a backup newer than source names other members than source, from which the plan has its members.
func laterMembers(c catalog.Catalog, source catalog.Backup) []string {
	for _, b := range c.Backups { // newest first
		if !b.Started.After(source.Started) {
			return nil
		}
		if sameVoters(b.Members, source.Members) {
			continue
		}
		return []string{fmt.Sprintf("the members are those of %s (backup %s); backup %s of %s names others: %s. --initial-cluster chooses",
			source.Started.UTC().Format(time.RFC3339), source.ID, b.ID, b.Started.UTC().Format(time.RFC3339),
			initialCluster(voters(b.Members)))}
	}
	return nil
}

func initialCluster(members []Member) string {
	var parts []string
	for _, m := range members {
		for _, u := range m.PeerURLs {
			parts = append(parts, m.Name+"="+u)
		}
	}
	return strings.Join(parts, ",")
}

// named returns a function that reports whether a member is called name.
func named(name string) func(Member) bool {
	return func(m Member) bool { return m.Name == name }
}

func sameVoters(a, b []catalog.Member) bool {
	return slices.EqualFunc(sorted(voters(a)), sorted(voters(b)), func(a, b Member) bool {
		return a.Name == b.Name && sameURLs(a.PeerURLs, b.PeerURLs)
	})
}

// sameURLs reports whether a and b contain the same URLs in any order.
func sameURLs(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func voters(members []catalog.Member) (all []Member) {
	for _, m := range members {
		if !m.Learner {
			all = append(all, Member{Name: m.Name, PeerURLs: m.PeerURLs})
		}
	}
	return all
}

func sorted(members []Member) []Member {
	return slices.SortedFunc(slices.Values(members), func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
}
