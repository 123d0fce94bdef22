package s3

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// The prefixes of Object.Version, one for each way to pin a version.
const (
	byID   = "v:" // an id in a versioned bucket
	byETag = "e:" // the newest version, as long as it has this ETag: a bucket without versions
	byNull = "n:" // the version from before the bucket had versions, as long as it has this ETag
	nullID = "null"
)

func versionName(id, etag *string) string {
	given := aws.ToString(id)
	if given != "" && given != nullID {
		return byID + given
	}
	return byETag + aws.ToString(etag)
}

// pin holds the parameters that select one version in a request; nil parameters are not sent.
type pin struct{ id, etag *string }

// parseVersion returns the pin for an Object.Version. ok is false if the text cannot name a version.
func parseVersion(version string) (p pin, ok bool) {
	if version == "" {
		return pin{}, true
	}
	id, is := strings.CutPrefix(version, byID)
	if is && id != "" {
		return pin{id: &id}, true
	}
	etag, is := strings.CutPrefix(version, byETag)
	if is && etag != "" {
		return pin{etag: &etag}, true
	}
	etag, is = strings.CutPrefix(version, byNull)
	if is && etag != "" {
		return pin{id: aws.String(nullID), etag: &etag}, true
	}
	return pin{}, false
}
