package s3

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// A version is named by what pins it. Their prefixes keep the kinds apart.
const (
	byID   = "v:" // the id that a versioned bucket gives
	byETag = "e:" // the newest one, as long as it has this ETag: a bucket without versions
	byNull = "n:" // the one that was stored before the bucket had versions, as long as it has this ETag
	nullID = "null"
)

func versionName(id, etag *string) string {
	if id := aws.ToString(id); id != "" && id != nullID {
		return byID + id
	}
	return byETag + aws.ToString(etag)
}

// pin is what a request says to mean one version; nil where it says nothing.
type pin struct{ id, etag *string }

// pinned tells what version means, and ok only if it can be the name of one.
func pinned(version string) (p pin, ok bool) {
	if version == "" {
		return pin{}, true
	}
	if id, is := strings.CutPrefix(version, byID); is && id != "" {
		return pin{id: &id}, true
	}
	if etag, is := strings.CutPrefix(version, byETag); is && etag != "" {
		return pin{etag: &etag}, true
	}
	if etag, is := strings.CutPrefix(version, byNull); is && etag != "" {
		return pin{id: aws.String(nullID), etag: &etag}, true
	}
	return pin{}, false
}
