package database

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
)

// lockTimeout is how long a stopped member may still lock its database.
const lockTimeout = 10 * time.Second

// Edit changes the database of a stopped member, or creates one.
func Edit(path string, change func(*bolt.Tx) error) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout})
	if err != nil {
		return err
	}
	return errors.Join(db.Update(change), db.Close())
}

// Edited returns a database after a change.
func Edited(database []byte, change func(*bolt.Tx) error) ([]byte, error) {
	dir, err := os.MkdirTemp("", "dr-edited-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "db")
	err = os.WriteFile(path, database, 0o600)
	if err != nil {
		return nil, err
	}
	err = Edit(path, change)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
