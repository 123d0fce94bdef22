package seal_test

import (
	"fmt"
	"io"
	"log"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/seal"
)

func Example() {
	identity, recipient, err := seal.Generate()
	if err != nil {
		log.Fatal(err)
	}
	to, err := seal.ParseRecipients(strings.NewReader(recipient))
	if err != nil {
		log.Fatal(err)
	}
	sealed, err := seal.New(strings.NewReader("every Secret of a cluster"), to)
	if err != nil {
		log.Fatal(err)
	}
	defer sealed.Close()

	keys, err := seal.ParseKeys(strings.NewReader(identity))
	if err != nil {
		log.Fatal(err)
	}
	opened, err := seal.Open(sealed, to.Seal(), keys)
	if err != nil {
		log.Fatal(err)
	}
	defer opened.Close()
	plain, err := io.ReadAll(opened)
	fmt.Println(string(plain), err)
	// Output: every Secret of a cluster <nil>
}
