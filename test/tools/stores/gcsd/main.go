// Command gcsd is a fake of Google Cloud Storage for tests: the library of fake-gcs-server behind a handler that adds
// what it lacks and a backup needs to see refused. It keeps everything in memory and speaks the JSON API alone.
//
// Added are bearer tokens with fewer rights and their exchange, generation preconditions on read, delete and update,
// holds and retention, and resumable uploads that a client may go on with after a cut. The rules are written from the
// public description of the API: what the tests show by them is that a client takes such an answer rightly, not that
// the real service gives it.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

func main() {
	address := flag.String("address", "127.0.0.1:0", "where to listen")
	flag.Parse()
	if err := serve(*address); err != nil {
		fmt.Fprintln(os.Stderr, "gcsd:", err)
		os.Exit(1)
	}
}

func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	host := listener.Addr().String()
	store, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener:  true,
		Scheme:      "http",
		ExternalURL: "http://" + host,
		PublicHost:  host,
		Writer:      io.Discard,
	})
	if err != nil {
		return err
	}
	fmt.Println("gcsd: a fake of Google Cloud Storage on", host)
	return http.Serve(listener, newFake(store, host))
}
