package plan_test

import (
	"flag"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

var update = flag.Bool("update", false, "write the golden files anew")

const clusterName = "prod"

var started = time.Date(2026, 11, 21, 9, 24, 33, 0, time.UTC)

// deadURL is a client URL at which no server listens.
const deadURL = "http://127.0.0.1:1"

func threeMembers() []catalog.Member {
	var members []catalog.Member
	for i := range 3 {
		members = append(members, catalog.Member{
			ID: fmt.Sprintf("%x", i+10), Name: fmt.Sprintf("m%d", i+1),
			PeerURLs: []string{fmt.Sprintf("http://127.0.0.1:%d", 2380+i)}, ClientURLs: []string{deadURL},
		})
	}
	return members
}
