package objectstores

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/etcd-dr/etcd-dr/test/tools"
)

var minio once[*S3Server]

// Minio returns MinIO over TLS: a second implementation of S3, with encryption at rest, and with keys that are a prefix
// of another key's path.
func Minio(t testing.TB) *S3Server {
	t.Helper()
	needServers(t)
	program := tools.Path(t, "stores", "minio", "minio")
	return copyOf(minio.get(t, func() (*S3Server, error) { return startMinio(program) }))
}

func startMinio(program string) (*S3Server, error) {
	c, err := valid()
	if err != nil {
		return nil, err
	}
	kms := make([]byte, 32)
	rand.Read(kms)
	endpoint, err := launch{
		name: "minio",
		command: func(dir string, port int) *exec.Cmd {
			cmd := exec.Command(program, "server", "--address", fmt.Sprintf("127.0.0.1:%d", port), "--certs-dir", c.dir,
				"--quiet", "--anonymous", filepath.Join(dir, "data"))
			cmd.Env = []string{
				"MINIO_ROOT_USER=" + ownerKey, "MINIO_ROOT_PASSWORD=" + ownerSecret,
				"MINIO_BROWSER=off", "MINIO_UPDATE=off",
				"MINIO_KMS_SECRET_KEY=test:" + base64.StdEncoding.EncodeToString(kms),
			}
			return cmd
		},
		ready: givesCredentials,
		tls:   true,
	}.start()
	if err != nil {
		return nil, err
	}
	s := minioAt(endpoint)
	s.CAFile, s.user = c.file, s.userBySession
	return s, nil
}

func minioAt(endpoint string) *S3Server {
	return &S3Server{Endpoint: endpoint, Region: region, AccessKey: ownerKey, SecretKey: ownerSecret}
}

// givesCredentials requests credentials. MinIO's health check passes before the server accepts such requests, which it
// does last.
func givesCredentials(ctx context.Context, client *http.Client, url string) error {
	_, err := minioAt(url).session(ctx, client, nil)
	return err
}

// userBySession returns a user with temporary credentials and a policy. MinIO grants nothing to a user who is named
// only by a bucket's policy.
func (s *S3Server) userBySession(t testing.TB, bucket string, rights Rights) *S3Server {
	t.Helper()
	credentials, err := s.session(t.Context(), clientFor(t), aws.String(policy(bucket, rights, "")))
	if err != nil {
		t.Fatal(err)
	}
	return &S3Server{
		Region:       s.Region,
		AccessKey:    *credentials.AccessKeyId,
		SecretKey:    *credentials.SecretAccessKey,
		SessionToken: *credentials.SessionToken,
		user:         s.user,
	}
}

// session requests temporary credentials, with all rights of s unless a policy restricts them.
func (s *S3Server) session(ctx context.Context, client *http.Client, policy *string) (*types.Credentials, error) {
	options := sts.Options{
		BaseEndpoint: aws.String(s.Endpoint), Region: s.Region, Credentials: s.credentials(), HTTPClient: client,
	}
	out, err := sts.New(options).AssumeRole(ctx, &sts.AssumeRoleInput{
		RoleArn:         aws.String("arn:aws:iam::000000000000:role/test"),
		RoleSessionName: aws.String("test"),
		DurationSeconds: aws.Int32(3600),
		Policy:          policy,
	})
	if err != nil {
		return nil, err
	}
	return out.Credentials, nil
}
