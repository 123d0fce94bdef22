package address_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/address"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]address.Address{
		"file:///var/backups":        {Scheme: "file", Path: "/var/backups"},
		"file:///var/backups/":       {Scheme: "file", Path: "/var/backups"},
		"file:///var/x/../backups":   {Scheme: "file", Path: "/var/backups"},
		"file:///with%20space":       {Scheme: "file", Path: "/with space"},
		"file:///mnt?create=false":   {Scheme: "file", Path: "/mnt", Create: "false"},
		"s3://bucket":                {Scheme: "s3", Bucket: "bucket"},
		"s3://bucket/":               {Scheme: "s3", Bucket: "bucket"},
		"s3://my.bucket_1/etcd/prod": {Scheme: "s3", Bucket: "my.bucket_1", Prefix: "etcd/prod"},
		"gs://bucket/etcd/":          {Scheme: "gs", Bucket: "bucket", Prefix: "etcd"},
		"gs://bucket/a%23b?ca=/ca":   {Scheme: "gs", Bucket: "bucket", Prefix: "a#b", CA: "/ca"},
		"s3://bucket?region=eu-west-1&path-style=true&checksums=when-required&endpoint=https://host:9000&ca=/ca.pem": {
			Scheme: "s3", Bucket: "bucket", Endpoint: "https://host:9000", Region: "eu-west-1", CA: "/ca.pem",
			PathStyle: "true", Checksums: "when-required",
		},
		"s3://bucket?sse=aws:kms&kms-key=arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab&storage-class=STANDARD_IA": {
			Scheme: "s3", Bucket: "bucket", SSE: "aws:kms", KMSKey: "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab",
			StorageClass: "STANDARD_IA",
		},
		"azblob://box/etcd?account=store1&endpoint=http://127.0.0.1:10000/store1": {
			Scheme: "azblob", Bucket: "box", Prefix: "etcd", Account: "store1", Endpoint: "http://127.0.0.1:10000/store1",
		},
	} {
		got, err := address.Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, say := range map[string]string{
		"":                                        "none given",
		"/var/backups":                            "use file:///path",
		"ftp://host/dir":                          "use file:///path",
		"file://repo":                             "three slashes",
		"file:repo":                               "three slashes",
		"file:///dir?ca=/ca":                      "allows create",
		"file:///dir?create=true":                 "create must be given once, as false",
		"s3://bucket?create=false":                "allows ca",
		"s3:bucket":                               "names no bucket",
		"s3://":                                   "names no bucket",
		"s3:///prefix":                            "names no bucket",
		"gs://?ca=/ca":                            "names no bucket",
		"s3://b":                                  "no bucket has such a name",
		"s3://host:9000/b":                        "no bucket has such a name",
		"s3://-bucket":                            "no bucket has such a name",
		"s3://bucket/a//b":                        "prefix",
		"s3://bucket/a/../b":                      "prefix",
		"s3://bucket/a%0Ab":                       "prefix",
		"s3://bucket/a#b":                         "fragment",
		"s3://bucket/a#":                          "fragment",
		"file:///dir#":                            "fragment",
		"s3://bucket?regoin=x":                    "allows ca, checksums, endpoint, kms-key, path-style, region, sse, storage-class",
		"s3://bucket?account=store1":              "s3:// allows",
		"gs://bucket?region=eu":                   "allows ca, endpoint",
		"azblob://box?path-style=true":            "allows account, ca, endpoint",
		"s3://bucket?region=":                     "region must be given once",
		"s3://bucket?region=a&region=b":           "region must be given once",
		"s3://bucket?path-style=yes":              "true or false",
		"s3://bucket?storage-class=GLACIER":       "read at once",
		"s3://bucket?storage-class=DEEP_ARCHIVE":  "read at once",
		"s3://bucket?kms-key=alias/x":             "needs sse=aws:kms",
		"s3://bucket?sse=AES256&kms-key=alias/x":  "needs sse=aws:kms",
		"s3://bucket?sse=none":                    "AES256",
		"gs://bucket?sse=aws:kms":                 "allows ca, endpoint",
		"s3://bucket?checksums=never":             "auto or when-required",
		"s3://bucket?ca=ca.pem":                   "absolute path",
		"s3://bucket?endpoint=host:9000":          "https://host:port",
		"s3://bucket?endpoint=https://host/path":  "https://host:port",
		"s3://bucket?endpoint=ftp://host":         "https://host:port",
		"s3://bucket?endpoint=https://host%3Fa=b": "https://host:port",
		"gs://bucket?endpoint=https://:9000":      "https://host:port",
		"azblob://box?account=Store-1":            "lower-case",
		"s3://bucket?a;b":                         "does not parse",
	} {
		_, err := address.Parse(text)
		if !errors.Is(err, address.ErrURL) || !strings.Contains(err.Error(), say) {
			t.Errorf("Parse(%q): %v, want %q", text, err, say)
		}
	}
}

func TestCredentialsAreRefusedAndNotRepeated(t *testing.T) {
	const secret = "Hunter2"
	for _, text := range []string{
		"s3://user:Hunter2@bucket/prefix",
		"s3://Hunter2@bucket",
		"file://user:Hunter2@/dir",
		"https://user:Hunter2@host/dir",
		"s3://user:Hunter2%zz@bucket",
		"s3://AKIA:Hunter2",
		"s3://bucket?secret_access_key=Hunter2",
		"s3://bucket?access-key=Hunter2",
		"s3://bucket?AWS_SECRET=Hunter2",
		"s3://bucket?X-Amz-Signature=Hunter2&region=eu",
		"s3://bucket?X%2DAmz%2DSecurity%2DTok%65n=Hunter2",
		"gs://bucket?token=Hunter2",
		"azblob://box?sv=2026&sig=Hunter2",
		"azblob://box?sas=Hunter2",
		"azblob://box?account=store1&password=Hunter2",
		"azblob://box?Hunter2",
		"azblob://box?account=Hunter2",
		"s3://bucket?region=Hunter2%20",
		"s3://bucket?endpoint=https://user:Hunter2@host",
		"s3://bucket?endpoint=https://Hunter2@host",
		"s3://bucket?endpoint=https://host%3Fsig=Hunter2",
		"s3://bucket?%zz=Hunter2",
		"s3://bucket/prefix#Hunter2",
		"file:///dir?password=Hunter2",
		"Hunter2",
		"Hunter2://x",
		":Hunter2",
		"s3://bucket/\x00Hunter2",
	} {
		_, err := address.Parse(text)
		if !errors.Is(err, address.ErrURL) {
			t.Fatalf("Parse(%q): %v", text, err)
		}
		shown := address.Shown(text)
		if strings.Contains(err.Error()+shown, secret) {
			t.Errorf("Parse(%q): %v; Shown: %s", text, err, shown)
		}
	}
}

func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"file:///var/backups":            "file:///var/backups",
		"s3://bucket/etcd/?region=eu":    "s3://bucket/etcd?region=eu",
		"gs://bucket?endpoint=http://h:": "gs://bucket?endpoint=http%3A%2F%2Fh%3A",
	} {
		got := address.Shown(text)
		if got != want {
			t.Errorf("Shown(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"file:///dir", "s3://bucket/a/b?region=eu&path-style=true", "gs://bucket?endpoint=https://host",
		"azblob://box/a%20b?ca=/x",
		"s3://user:password@bucket", "s3://bucket?key=x", "s3://bucket/a#b",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := address.Parse(text)
		shown := address.Shown(text)
		if err != nil {
			if !errors.Is(err, address.ErrURL) || a != (address.Address{}) {
				t.Fatalf("Parse(%q) = %+v, %v", text, a, err)
			}
			return
		}
		again, err := address.Parse(shown)
		if err != nil || again != a {
			t.Fatalf("Parse(%q) = %+v, but its own form %q gives %+v, %v", text, a, shown, again, err)
		}
	})
}

// Two addresses of one place differ only in options that control the access.
func TestPlace(t *testing.T) {
	for text, want := range map[string]string{
		"s3://bucket/etcd/?ca=/ca.crt&region=eu&sse=AES256": "s3://bucket/etcd",
		"s3://bucket?endpoint=https://minio:9000&region=eu": "s3://bucket?endpoint=https%3A%2F%2Fminio%3A9000",
		"azblob://container?account=prod&ca=/ca.crt":        "azblob://container?account=prod",
		"file:///var//backups/?create=false":                "file:///var/backups",
	} {
		a, err := address.Parse(text)
		if err != nil || a.Place() != want {
			t.Errorf("%s: %q, %v, want %q", text, a.Place(), err, want)
		}
	}
}
