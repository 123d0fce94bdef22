package objectstores

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-dr/etcd-dr/test/tools"
)

const (
	ownerKey    = "owner"
	ownerSecret = "owner-of-the-test-store" // MinIO wants eight characters at least
	region      = "us-east-1"
)

var versitygwTLS, versitygwPlain once[*S3Server]

// S3 returns versitygw over TLS, the server for nearly every test: it is the strictest one available.
func S3(t testing.TB) *S3Server {
	t.Helper()
	needServers(t)
	program := tools.Path(t, "stores", "versitygw", "versitygw")
	return copyOf(versitygwTLS.get(t, func() (*S3Server, error) { return startVersitygw(program, true) }))
}

// S3Plain returns versitygw over plain http.
func S3Plain(t testing.TB) *S3Server {
	t.Helper()
	needServers(t)
	program := tools.Path(t, "stores", "versitygw", "versitygw")
	return copyOf(versitygwPlain.get(t, func() (*S3Server, error) { return startVersitygw(program, false) }))
}

// copyOf returns a copy, so that a test's changes do not affect the others.
func copyOf[S any](server *S) *S {
	c := *server
	return &c
}

func startVersitygw(program string, tls bool) (*S3Server, error) {
	c, err := valid()
	if err != nil {
		return nil, err
	}
	endpoint, err := launch{
		name:    "versitygw",
		command: func(dir string, port int) *exec.Cmd { return versitygw(program, c, tls, dir, port) },
		ready:   answering("/health", http.StatusOK),
		tls:     tls,
	}.start()
	if err != nil {
		return nil, err
	}
	s := &S3Server{Endpoint: endpoint, Region: region, AccessKey: ownerKey, SecretKey: ownerSecret}
	if tls {
		s.CAFile = c.file
	}
	s.user = func(t testing.TB, bucket string, rights Rights) *S3Server {
		return versitygwUser(t, program, s, bucket, rights)
	}
	return s, nil
}

func versitygw(program string, c certificate, tls bool, dir string, port int) *exec.Cmd {
	root, versions, users := filepath.Join(dir, "root"), filepath.Join(dir, "versions"), filepath.Join(dir, "users")
	for _, path := range []string{root, versions, users} {
		// If this fails, the server reports the missing directory.
		_ = os.Mkdir(path, 0o700)
	}
	// Without --keep-alive every request would need a new connection.
	args := []string{"--port", fmt.Sprintf("127.0.0.1:%d", port), "--region", region, "--iam-dir", users,
		"--health", "/health", "--quiet", "--keep-alive"}
	if tls {
		args = append(args, "--cert", c.file, "--key", c.key)
	}
	cmd := exec.Command(program, append(args, "posix", "--versioning-dir", versions, root)...)
	cmd.Env = []string{"ROOT_ACCESS_KEY_ID=" + ownerKey, "ROOT_SECRET_ACCESS_KEY=" + ownerSecret}
	return cmd
}

// versitygwUser creates a user, and a bucket policy that names it: without a policy a user has no rights.
func versitygwUser(t testing.TB, program string, s *S3Server, bucket string, rights Rights) *S3Server {
	t.Helper()
	user := &S3Server{Region: s.Region, AccessKey: randomName(), SecretKey: randomName(), user: s.user}
	cmd := exec.CommandContext(t.Context(), program, "admin", "--allow-insecure",
		"--endpoint-url", s.Endpoint, "--region", s.Region,
		"--access", s.AccessKey, "--secret", s.SecretKey,
		"create-user", "--access", user.AccessKey, "--secret", user.SecretKey, "--role", "user")
	cmd.Env = environment(shared.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make a user of versitygw: %v\n%s", err, out)
	}
	if rights == Nothing {
		return user
	}
	_, err = s.Client(t).PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{
		Bucket: aws.String(bucket),
		Policy: aws.String(policy(bucket, rights, `"Principal":{"AWS":["`+user.AccessKey+`"]},`)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return user
}

// policy returns a policy with the rights in one bucket. A policy of a bucket names its principal, one of a session
// does not.
func policy(bucket string, rights Rights, principal string) string {
	actions := []string{
		"s3:GetObject", "s3:GetObjectVersion", "s3:GetObjectRetention",
		"s3:ListBucket", "s3:ListBucketVersions", "s3:ListBucketMultipartUploads", "s3:ListMultipartUploadParts",
		"s3:GetBucketLocation", "s3:GetBucketVersioning", "s3:GetBucketObjectLockConfiguration",
	}
	switch rights {
	case NoDelete:
		actions = append(actions, "s3:PutObject", "s3:PutObjectRetention", "s3:AbortMultipartUpload")
	case Nothing:
		actions = []string{"s3:GetBucketTagging"} // a policy has to allow something
	}
	statement := fmt.Sprintf(`{"Effect":"Allow",%s"Action":["%s"],"Resource":["arn:aws:s3:::%s","arn:aws:s3:::%s/*"]}`,
		principal, strings.Join(actions, `","`), bucket, bucket)
	return `{"Version":"2012-10-17","Statement":[` + statement + `]}`
}
