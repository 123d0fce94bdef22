// Package address parses a repository's URL: the store, the place in it, and how to access it. It links no store.
//
//	file:///absolute/path?create=false
//	s3://bucket/prefix?endpoint=URL&region=NAME&path-style=true|false&checksums=auto|when-required&ca=/file
//	  &sse=AES256|aws:kms&kms-key=ID&storage-class=NAME
//	gs://bucket/prefix?endpoint=URL&ca=/file
//	azblob://container/prefix?account=NAME&endpoint=URL&ca=/file
//
// Credentials are never part of it: URLs appear in command lines, logs and errors. Parse refuses a URL that seems to
// contain credentials, and its error repeats nothing of it.
package address

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrURL means that a repository's URL is not usable as written.
var ErrURL = fault.New(fault.Usage, "bad repository URL")

// Schemes of the stores.
const (
	File   = "file"
	S3     = "s3"
	GCS    = "gs"
	Azure  = "azblob"
	manual = "file:///path, s3://bucket/prefix, gs://bucket/prefix or azblob://container/prefix"
)

// Address is the parsed URL of a repository. Fields that do not apply to the store are empty.
type Address struct {
	Scheme string
	Path   string // of the directory, absolute; only with File
	Bucket string // or the container
	Prefix string // of all keys, without slashes at its ends; "" is the whole bucket

	Create    string // "false": the directory must contain a repository already; "" creates one
	Endpoint  string // URL of the store; "": the provider's
	Region    string // "": from the environment
	Account   string // "": from the environment
	CA        string // PEM file of additional authorities to trust
	PathStyle string // "true", "false"; "": the store's default
	Checksums string // "auto", "when-required"; "": the store's default

	SSE          string // server-side encryption: "AES256", "aws:kms", "aws:kms:dsse"; "": the bucket's default
	KMSKey       string // id, ARN or alias; "": the account's default; only with an SSE of KMS
	StorageClass string // of large objects; "": the store's default
}

// option is one part of the query.
type option struct {
	stores []string
	field  func(*Address) *string
	valid  func(scheme, value string) bool
	form   string // description of a valid value for error messages
}

var options = map[string]option{
	"endpoint": {
		[]string{S3, GCS, Azure}, func(a *Address) *string { return &a.Endpoint }, isEndpoint, "https://host:port",
	},
	"create":     {[]string{File}, func(a *Address) *string { return &a.Create }, oneOf("false"), "false"},
	"region":     {[]string{S3}, func(a *Address) *string { return &a.Region }, matches(`[A-Za-z0-9_-]+`, 64), "a name"},
	"path-style": {[]string{S3}, func(a *Address) *string { return &a.PathStyle }, oneOf("true", "false"), "true or false"},
	"checksums": {
		[]string{S3}, func(a *Address) *string { return &a.Checksums }, oneOf("auto", "when-required"),
		"auto or when-required",
	},
	"sse": {
		[]string{S3}, func(a *Address) *string { return &a.SSE }, oneOf("AES256", "aws:kms", "aws:kms:dsse"),
		"AES256, aws:kms or aws:kms:dsse",
	},
	"kms-key": {
		[]string{S3}, func(a *Address) *string { return &a.KMSKey }, matches(`[A-Za-z0-9:/_-]+`, 1000),
		"the id, ARN or alias of a key of KMS",
	},
	"storage-class": {
		[]string{S3}, func(a *Address) *string { return &a.StorageClass }, isReadableClass,
		"a class that is read at once, such as STANDARD_IA, INTELLIGENT_TIERING or GLACIER_IR",
	},
	"account": {
		[]string{Azure}, func(a *Address) *string { return &a.Account }, matches(`[a-z0-9]{3,}`, 24),
		"3 to 24 lower-case letters and digits",
	},
	"ca": {
		[]string{S3, GCS, Azure}, func(a *Address) *string { return &a.CA }, isFile, "the absolute path of a PEM file",
	},
}

// secretive are parts of option names that suggest a credential.
var secretive = []string{"key", "secret", "token", "sig", "sas", "pass", "pwd", "cred", "auth"}

var (
	isBucket = matches(`[A-Za-z0-9][A-Za-z0-9._-]+[A-Za-z0-9]`, 222) // the union of the stores' rules
	isClass  = matches(`[A-Z0-9_]+`, 64)
	control  = regexp.MustCompile(`[\x00-\x1f\x7f]`)
)

// matches returns a function that reports whether all of a value matches the pattern, and has at most the given number of bytes. A pattern
// with the number in it, such as {1,1000}, would take every command milliseconds to compile.
func matches(pattern string, most int) func(scheme, value string) bool {
	whole := regexp.MustCompile(`^(?:` + pattern + `)$`)
	return func(_, value string) bool { return len(value) <= most && whole.MatchString(value) }
}

func oneOf(values ...string) func(scheme, value string) bool {
	return func(_, value string) bool { return slices.Contains(values, value) }
}

// isEndpoint reports whether value is a scheme and a host. Azure also allows a path, which names the account in an
// emulator.
func isEndpoint(scheme, value string) bool {
	u, err := url.Parse(value)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
		u.RawQuery == "" && !u.ForceQuery && u.Fragment == "" && !control.MatchString(value) &&
		(scheme == Azure || strings.Trim(u.Path, "/") == "")
}

// isReadableClass reports whether objects of the class can be read at once. An archived object could neither be
// restored from nor be listed with its manifest.
func isReadableClass(scheme, value string) bool {
	return value != "GLACIER" && value != "DEEP_ARCHIVE" && isClass(scheme, value)
}

func isFile(_, value string) bool { return filepath.IsAbs(value) && !control.MatchString(value) }

// Parse parses a repository's URL. Its errors match ErrURL and repeat nothing of text but its scheme and the names of
// known options.
func Parse(text string) (Address, error) {
	if text == "" {
		return Address{}, fmt.Errorf("%w: none given: use --repo file:///path or DR_REPO", ErrURL)
	}
	u, err := url.Parse(text)
	if err != nil { // err would repeat the text, which may contain a password
		return Address{}, fmt.Errorf("%w: it does not parse: use %s", ErrURL, manual)
	}
	if u.User != nil {
		return Address{}, fmt.Errorf("%w: it contains credentials, which others can read in the command line: put them into a folder (--credentials) or into the environment", ErrURL)
	}
	if strings.Contains(text, "#") {
		return Address{}, fmt.Errorf("%w: it has a fragment (#): in a path, write %%23", ErrURL)
	}
	switch u.Scheme {
	case File:
		return parseFile(u)
	case S3, GCS, Azure:
		return parseObjects(u)
	}
	return Address{}, fmt.Errorf("%w: unknown scheme: use %s", ErrURL, manual)
}

func parseFile(u *url.URL) (Address, error) {
	err := checkQuery(u)
	if err != nil {
		return Address{}, err
	}
	if u.Host != "" || !filepath.IsAbs(u.Path) || u.ForceQuery {
		return Address{}, fmt.Errorf("%w: a directory is written file:///absolute/path, with three slashes: correct it", ErrURL)
	}
	a := Address{Scheme: File, Path: filepath.Clean(filepath.FromSlash(u.Path))}
	err = a.parseQuery(u.RawQuery)
	if err != nil {
		return Address{}, err
	}
	return a, nil
}

func parseObjects(u *url.URL) (Address, error) {
	a := Address{Scheme: u.Scheme, Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	switch {
	case u.Opaque != "" || u.Host == "":
		return Address{}, fmt.Errorf("%w: it names no bucket: use %s://bucket/prefix", ErrURL, u.Scheme)
	case !isBucket(u.Scheme, u.Host):
		return Address{}, fmt.Errorf("%w: no bucket has such a name: use %s://bucket/prefix, the host of another store goes "+
			"into ?endpoint=https://host", ErrURL, u.Scheme)
	case a.Prefix != "" && storage.ValidKey(a.Prefix+"/x") != nil:
		return Address{}, fmt.Errorf("%w: its prefix has an empty, \".\" or \"..\" element, a control character, or "+
			"is too long: correct it", ErrURL)
	}
	err := checkQuery(u)
	if err != nil {
		return Address{}, err
	}
	err = a.parseQuery(u.RawQuery)
	if err != nil {
		return Address{}, err
	}
	return a, nil
}

// checkQuery returns an error if the query seems to contain a credential, for any store.
func checkQuery(u *url.URL) error {
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		name, _, _ := strings.Cut(part, "=")
		_, known := options[name]
		if known {
			continue
		}
		name, err := url.QueryUnescape(name)
		isSecretive := func(part string) bool { return strings.Contains(strings.ToLower(name), part) }
		if err != nil || slices.ContainsFunc(secretive, isSecretive) {
			return fmt.Errorf("%w: it seems to contain credentials, which others can read in the command line: put them into a "+
				"folder (--credentials), or where the store's own tools look for them", ErrURL)
		}
	}
	return nil
}

func (a *Address) parseQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%w: its query does not parse: use ?name=value&name=value", ErrURL)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		given := values[name]
		o, known := options[name]
		if !known || !slices.Contains(o.stores, a.Scheme) {
			return fmt.Errorf("%w: it has an unknown option: %s:// allows %s",
				ErrURL, a.Scheme, strings.Join(optionsOf(a.Scheme), ", "))
		}
		if len(given) != 1 || !o.valid(a.Scheme, given[0]) {
			return fmt.Errorf("%w: %s must be given once, as %s", ErrURL, name, o.form)
		}
		*o.field(a) = given[0]
	}
	if a.KMSKey != "" && !strings.HasPrefix(a.SSE, "aws:kms") {
		return fmt.Errorf("%w: kms-key needs sse=aws:kms", ErrURL)
	}
	return nil
}

// optionsOf returns the names of a store's options, sorted.
func optionsOf(scheme string) []string {
	var names []string
	for name, o := range options {
		if slices.Contains(o.stores, scheme) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// String returns a URL that Parse parses to a.
func (a Address) String() string {
	query := url.Values{}
	for _, name := range optionsOf(a.Scheme) {
		value := *options[name].field(&a)
		if value != "" {
			query.Set(name, value)
		}
	}
	if a.Scheme == File {
		return (&url.URL{Scheme: File, Path: filepath.ToSlash(a.Path), RawQuery: query.Encode()}).String()
	}
	u := url.URL{Scheme: a.Scheme, Host: a.Bucket, RawQuery: query.Encode()}
	if a.Prefix != "" {
		u.Path = "/" + a.Prefix
	}
	return u.String()
}

// Place returns the URL of a's store and the place in it, without the options that only control the access.
func (a Address) Place() string {
	return Address{Scheme: a.Scheme, Path: a.Path, Bucket: a.Bucket, Prefix: a.Prefix, Endpoint: a.Endpoint, Account: a.Account}.String()
}

// Object returns the URL of an object in the bucket below a's prefix, without options.
func (a Address) Object(key string) string {
	return Address{Scheme: a.Scheme, Bucket: a.Bucket, Prefix: strings.TrimPrefix(a.Prefix+"/"+key, "/")}.String()
}

// Split splits the last element off the prefix of a bucket. name is "" if there is no prefix.
func (a Address) Split() (folder Address, name string) {
	prefix, name := path.Split(a.Prefix)
	a.Prefix = strings.TrimSuffix(prefix, "/")
	return a, name
}

// Shown returns text in a form that is safe in output and errors. It does not show an invalid URL, which may contain a
// secret anywhere.
func Shown(text string) string {
	a, err := Parse(text)
	if err != nil {
		return "(an unusable repository URL)"
	}
	return a.String()
}
