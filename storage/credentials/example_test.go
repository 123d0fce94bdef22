package credentials_test

import (
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage/credentials"
)

func ExampleParse() {
	c, err := credentials.Parse(map[string][]byte{"access-key": []byte("AKID\n"), "secret-key": []byte("s3cret\n"), "ca.crt": nil})
	fmt.Println(c, err)
	_, err = credentials.Parse(map[string][]byte{"access-key": []byte("AKID\n")})
	fmt.Println(err)
	// Output:
	// credentials for s3:// <nil>
	// bad credentials: access-key needs AWS_SECRET_ACCESS_KEY too: add it
}
