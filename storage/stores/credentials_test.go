package stores_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// accounts has one of each kind of credentials: a repository, and the variables or the Secret that open it.
var accounts = map[string]func(t *testing.T) (url string, env []string, secret map[string]string){
	"s3 with a session": func(t *testing.T) (string, []string, map[string]string) {
		s := objectstores.Minio(t)
		bucket := s.Bucket(t)
		s = s.As(t, bucket, objectstores.NoDelete)
		return s.URL(bucket, "p"), s.Env(), s.Secret()
	},
	"s3 with the files of the command line": func(t *testing.T) (string, []string, map[string]string) {
		s := objectstores.S3(t)
		return without(t, s.URL(s.Bucket(t), "p"), "region"), s.Env(), map[string]string{
			"credentials": "[default]\naws_access_key_id = " + s.AccessKey + "\naws_secret_access_key = " + s.SecretKey + "\n",
			"config":      "[default]\nregion = " + s.Region + "\n",
		}
	},
	"gs": func(t *testing.T) (string, []string, map[string]string) {
		s := objectstores.GCS(t)
		return s.URL(s.Bucket(t), "p"), s.Env(t), s.Secret()
	},
	"gs with a service account": func(t *testing.T) (string, []string, map[string]string) {
		s := objectstores.GCS(t)
		return s.URL(s.Bucket(t), "p"), s.Env(t), map[string]string{"gcp.json": serviceAccount(t, s.Token)}
	},
	"azblob with a key": func(t *testing.T) (string, []string, map[string]string) {
		s := objectstores.Azure(t)
		return without(t, s.URL(s.Bucket(t), "p"), "account"), s.Env(), s.Secret()
	},
	"azblob with a signature": func(t *testing.T) (string, []string, map[string]string) {
		s := objectstores.Azure(t)
		bucket := s.Bucket(t)
		s = s.As(t, bucket, objectstores.NoDelete)
		return s.URL(bucket, "p"), s.Env(), s.Secret()
	},
	"azblob with a connection string": func(t *testing.T) (string, []string, map[string]string) {
		s := objectstores.Azure(t)
		return without(t, s.URL(s.Bucket(t), "p"), "account", "endpoint"), s.Env(), map[string]string{
			"AZURE_STORAGE_CONNECTION_STRING": "AccountName=" + s.Account + ";AccountKey=" + s.Key + ";BlobEndpoint=" + s.Endpoint,
		}
	},
}

// serviceAccount returns the key of a service account, which its issuer exchanges for token.
func serviceAccount(t *testing.T, token string) string {
	t.Helper()
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("assertion") == "" {
			http.Error(w, "no assertion", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": %q, "token_type": "Bearer", "expires_in": 3600}`, token)
	}))
	t.Cleanup(issuer.Close)
	return keyFor(t, issuer.URL)
}

// keyFor returns the key of a service account whose tokens a URL issues.
func keyFor(t *testing.T, issuer string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "p", "client_email": "dr@p.iam.gserviceaccount.com", "token_uri": issuer,
		"private_key_id": "1", "private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(document)
}

// without returns a URL without some of its options.
func without(t *testing.T, text string, options ...string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	for _, option := range options {
		query.Del(option)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// TestCredentials checks that given credentials open a store although those of the environment are wrong.
func TestCredentials(t *testing.T) {
	for name, account := range accounts {
		t.Run(name, func(t *testing.T) {
			url, _, secret := account(t)
			objectstores.Setenv(t, objectstores.WrongEnv())
			given, err := credentials.Read(objectstores.Mount(t, secret))
			if err != nil {
				t.Fatal(err)
			}
			b, err := stores.Open(t.Context(), url, stores.Options{Credentials: given})
			if err != nil {
				t.Fatal(err)
			}
			put(t, b, "key", "content")
			wantContent(t, b, "key", "content")
		})
	}
}

// wrongSecrets hold credentials that are complete and not valid, by scheme.
var wrongSecrets = map[string]map[string][]byte{
	"s3":     {"AWS_ACCESS_KEY_ID": []byte("wrong"), "AWS_SECRET_ACCESS_KEY": []byte("Hunter2Secret"), "AWS_REGION": []byte("us-east-1")},
	"gs":     {"access-token": []byte("Hunter2Secret")},
	"azblob": {"AZURE_STORAGE_ACCOUNT": []byte("etcddr"), "AZURE_STORAGE_KEY": []byte("SHVudGVyMlNlY3JldA==")},
}

// TestWrongCredentials checks that the environment does not help out when the given credentials are wrong, and that the error
// contains nothing of them.
func TestWrongCredentials(t *testing.T) {
	for name, account := range accounts {
		url, env, _ := account(t)
		if strings.Contains(name, "connection") {
			continue // it contains the endpoint
		}
		t.Run(name, func(t *testing.T) {
			objectstores.Setenv(t, env)
			scheme, _, _ := strings.Cut(url, "://")
			wrong, err := credentials.Parse(wrongSecrets[scheme])
			if err != nil {
				t.Fatal(err)
			}
			b, err := stores.Open(t.Context(), url, stores.Options{Credentials: wrong})
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.Stat(t.Context(), "key")
			if !errors.Is(err, storage.ErrDenied) {
				t.Errorf("Stat: %v, want ErrDenied", err)
			}
			for _, secret := range wrongSecrets[scheme] {
				if len(secret) > 10 && strings.Contains(err.Error(), string(secret)) {
					t.Errorf("the error shows the secret: %v", err)
				}
			}
		})
	}
}

// TestCredentialsOfAnotherStore checks that credentials are sent to no store of another kind.
func TestCredentialsOfAnotherStore(t *testing.T) {
	for scheme, secret := range wrongSecrets {
		given, err := credentials.Parse(secret)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{"s3", "gs", "azblob"} {
			_, err := stores.Open(t.Context(), other+"://bucket", stores.Options{Credentials: given})
			if errors.Is(err, credentials.ErrCredentials) == (scheme == other) {
				t.Errorf("credentials for %s:// and a repository %s://: %v", scheme, other, err)
			}
		}
		_, err = stores.Open(t.Context(), "file://"+t.TempDir(), stores.Options{Credentials: given})
		if err != nil {
			t.Errorf("a directory: %v", err)
		}
	}
}

// TestRenewedCredentials checks that an open bucket follows its folder, and keeps the last usable credentials.
func TestRenewedCredentials(t *testing.T) {
	stores.FollowAtOnce(t)
	s := objectstores.S3(t)
	bucket := s.Bucket(t)
	wrong := map[string]string{"AWS_ACCESS_KEY_ID": "wrong", "AWS_SECRET_ACCESS_KEY": "wrong"}
	dir := objectstores.Mount(t, wrong)
	b, err := stores.Open(t.Context(), s.URL(bucket, "p"), stores.Options{CredentialsDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Stat(t.Context(), "key")
	if !errors.Is(err, storage.ErrDenied) {
		t.Errorf("wrong credentials: %v", err)
	}
	objectstores.Remount(t, dir, s.Secret())
	put(t, b, "key", "content")
	wantKeys(t, b, "key")
	_, ok := storage.AsSweeper(b)
	if !ok {
		t.Error("a bucket that follows a folder hides its leftovers")
	}
	objectstores.Remount(t, dir, map[string]string{"AWS_ACCESS_KEY_ID": "half"})
	wantContent(t, b, "key", "content")
	objectstores.Remount(t, dir, wrong)
	_, err = b.Stat(t.Context(), "key")
	if !errors.Is(err, storage.ErrDenied) {
		t.Errorf("wrong again: %v", err)
	}
	objectstores.Remount(t, dir, map[string]string{"AWS_ACCESS_KEY_ID": "half"})
	_, err = b.Stat(t.Context(), "key")
	if !errors.Is(err, storage.ErrDenied) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY") {
		t.Errorf("wrong and half: %v", err)
	}
	_, err = stores.Open(t.Context(), s.URL(bucket, "p"), stores.Options{CredentialsDir: dir})
	if !errors.Is(err, credentials.ErrCredentials) {
		t.Errorf("Open with half of a set: %v", err)
	}
}
