package stored

import (
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// DeadURL is a client URL at which no server listens.
const DeadURL = "http://127.0.0.1:1"

// ThreeMembers returns the voting members m1, m2 and m3, whose client ports answer nothing.
func ThreeMembers() []catalog.Member {
	var members []catalog.Member
	for i := range 3 {
		members = append(members, catalog.Member{
			ID: fmt.Sprintf("%x", i+10), Name: fmt.Sprintf("m%d", i+1),
			PeerURLs: []string{fmt.Sprintf("http://127.0.0.1:%d", 2380+i)}, ClientURLs: []string{DeadURL},
		})
	}
	return members
}
