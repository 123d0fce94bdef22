package address_test

import (
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage/address"
)

func ExampleParse() {
	a, err := address.Parse("s3://backups/etcd/prod?region=eu-central-1")
	fmt.Println(a.Scheme, a.Bucket, a.Prefix, err)
	_, err = address.Parse("s3://AKID:s3cret@backups/etcd")
	fmt.Println(err)
	// Output:
	// s3 backups etcd/prod <nil>
	// bad repository URL: it contains credentials, which others can read in the command line: put them into a folder (--credentials) or into the environment
}
