package credentials

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/address"
)

// MaxSize bounds the bytes of one file.
const MaxSize = 64 << 10

// Parse returns the credentials in files, by their names in a folder or the keys of a Secret. It ignores files whose names
// it does not recognise. Errors match ErrCredentials.
func Parse(files map[string][]byte) (Credentials, error) {
	found := collection{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, known := fieldOf(name)
		if !known {
			continue
		}
		err := found.add(f, name, files[name])
		if err != nil {
			return Credentials{}, err
		}
	}
	err := found.expand()
	if err != nil {
		return Credentials{}, err
	}
	scheme, err := found.scheme()
	if err != nil {
		return Credentials{}, fmt.Errorf("%w (found: %s)", err, namesOf(files))
	}
	s := set{scheme, map[field]string{}}
	for f, v := range found {
		if fields[f] == scheme {
			s.values[f] = v.text
		}
	}
	err = found.check(scheme)
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{func() set { return s }}, nil
}

// namesOf returns the names of files for an error, at most 20.
func namesOf(files map[string][]byte) string {
	names := slices.Sorted(maps.Keys(files))
	if len(names) == 0 {
		return "no files"
	}
	if len(names) > 20 {
		names = append(names[:20], "...")
	}
	return fmt.Sprintf("%q", names)
}

// collection holds the values that were found.
type collection map[field]value

// value is the text of a field, and the name of its file for errors.
type value struct{ text, file string }

// add adds the content of one file.
func (c collection) add(f field, file string, content []byte) error {
	text := string(bytes.TrimSpace(content))
	if text == "" {
		return fmt.Errorf("%w: %s is empty: give it a value, or remove it", ErrCredentials, file)
	}
	if len(content) > MaxSize {
		return fmt.Errorf("%w: %s has more than %d bytes: check its content", ErrCredentials, file, MaxSize)
	}
	f = f.byContent(text)
	if !multiline[f] && strings.ContainsFunc(text, isUnprintable) {
		return fmt.Errorf("%w: %s must be one line of printable ASCII characters, without a byte order mark", ErrCredentials, file)
	}
	return c.put(f, value{text, file})
}

// isUnprintable reports whether r is not a printable ASCII character. No store's credentials contain one.
func isUnprintable(r rune) bool { return r < ' ' || r > '~' }

// put sets a field. A second file for the same field must contain the same text.
func (c collection) put(f field, v value) error {
	before, twice := c[f]
	if twice && before.text != v.text {
		return fmt.Errorf("%w: %s and %s differ, although both names mean the same value: remove one", ErrCredentials, before.file, v.file)
	}
	c[f] = v
	return nil
}

// expand replaces the files with several values by the fields that they contain: the files of AWS's command line, and
// the one with Azure's variables.
func (c collection) expand() error {
	variables, ok := c[azureVariables]
	if ok {
		delete(c, azureVariables)
		for line := range strings.Lines(variables.text) {
			name, text, _ := strings.Cut(strings.TrimSpace(line), "=")
			f, known := fieldOf(name)
			if !known || fields[f] != address.Azure {
				continue
			}
			err := c.add(f, variables.file+" ("+name+")", []byte(text))
			if err != nil {
				return err
			}
		}
	}
	for _, f := range []field{awsShared, awsConfig} {
		v, ok := c[f]
		if !ok {
			continue
		}
		delete(c, f)
		err := c.expandProfile(v)
		if err != nil {
			return err
		}
	}
	return nil
}

// expandProfile adds the fields in the profile of a file in the form of ~/.aws/credentials or ~/.aws/config.
func (c collection) expandProfile(v value) error {
	profile, err := profileOf(v)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(profile)) {
		f, known := profileFields[key]
		if !known || profile[key] == "" {
			continue
		}
		err := c.put(f, value{profile[key], v.file + " (" + key + ")"})
		if err != nil {
			return err
		}
	}
	return nil
}

// recognised lists, for errors, the sets of names from which credentials can be read.
const recognised = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or credentials (a file like ~/.aws/credentials), for S3; " +
	"credentials.json or access-token for Google Cloud; AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, " +
	"AZURE_STORAGE_CONNECTION_STRING or AZURE_CLIENT_SECRET for Azure; docs/stores.md lists other names"

// scheme returns the scheme of the only store for which c contains secrets.
func (c collection) scheme() (string, error) {
	var schemes []string
	for f := range c {
		if secret[f] && !slices.Contains(schemes, fields[f]) {
			schemes = append(schemes, fields[f])
		}
	}
	switch len(schemes) {
	case 0:
		return "", fmt.Errorf("%w: no set of names is recognised: use %s", ErrCredentials, recognised)
	case 1:
		return schemes[0], nil
	}
	slices.Sort(schemes)
	return "", fmt.Errorf("%w: there are credentials for several stores (%s): use one folder for each", ErrCredentials, strings.Join(schemes, ", "))
}

// check returns an error if the set for the scheme is incomplete or ambiguous.
func (c collection) check(scheme string) error {
	switch scheme {
	case address.S3:
		return c.all(awsID, awsSecret)
	case address.GCS:
		return c.checkGCS()
	case address.Azure:
		return c.checkAzure()
	}
	return fmt.Errorf("%w: no credentials are known for %s://: use those of S3, Google Cloud or Azure", ErrCredentials, scheme)
}

func (c collection) checkGCS() error {
	kind := typeOf(c[gcsJSON].text)
	if c.has(gcsJSON) && kind != ServiceAccount && kind != AuthorizedUser {
		return fmt.Errorf("%w: %s must be JSON of the type %s or %s",
			ErrCredentials, c[gcsJSON].file, ServiceAccount, AuthorizedUser)
	}
	return c.one(gcsJSON, gcsToken)
}

func (c collection) checkAzure() error {
	_, known := suffixes[strings.ToLower(c[azureCloud].text)]
	if c.has(azureCloud) && !known {
		return fmt.Errorf("%w: %s must be AzurePublicCloud, AzureUSGovernmentCloud or AzureChinaCloud",
			ErrCredentials, c[azureCloud].file)
	}
	if c.has(azureSecret) {
		err := c.all(azureSecret, azureTenant, azureClient)
		if err != nil {
			return err
		}
	}
	return c.one(azureKey, azureSAS, azureConnection, azureSecret)
}

func (c collection) has(f field) bool {
	_, ok := c[f]
	return ok
}

// all returns an error if one of the fields is missing. At least one exists.
func (c collection) all(required ...field) error {
	present, missing := "", field("")
	for _, f := range required {
		if c.has(f) {
			present = c[f].file
		} else {
			missing = f
		}
	}
	if missing != "" {
		return fmt.Errorf("%w: %s needs %s too: add it", ErrCredentials, present, missing)
	}
	return nil
}

// one returns an error if c contains more than one of the alternatives.
func (c collection) one(alternatives ...field) error {
	var files []string
	for _, f := range alternatives {
		if c.has(f) {
			files = append(files, c[f].file)
		}
	}
	if len(files) > 1 {
		return fmt.Errorf("%w: %s exclude each other: keep one", ErrCredentials, strings.Join(files, " and "))
	}
	return nil
}

// typeOf returns the field "type" of a JSON document, "" if there is none.
func typeOf(document string) string {
	var d struct {
		Type string `json:"type"`
	}
	if json.Unmarshal([]byte(document), &d) != nil {
		return ""
	}
	return d.Type
}
