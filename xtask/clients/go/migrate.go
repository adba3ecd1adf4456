// golang-migrate: versions up, down and to a number, under its advisory lock, with a failure that leaves a dirty version.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/postgres"
	_ "github.com/golang-migrate/migrate/v4/source/file"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func want(got, wanted any) {
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		panic(fmt.Sprintf("got %v, wanted %v", got, wanted))
	}
}

func main() {
	at, err := os.MkdirTemp("", "migrate")
	must(err)
	defer os.RemoveAll(at)
	for name, text := range map[string]string{
		"1_one.up.sql":     "CREATE TABLE one (id int PRIMARY KEY)",
		"1_one.down.sql":   "DROP TABLE one",
		"2_two.up.sql":     "ALTER TABLE one ADD COLUMN v text; CREATE INDEX one_v ON one (v)",
		"2_two.down.sql":   "ALTER TABLE one DROP COLUMN v",
		"3_three.up.sql":   "CREATE TABLE one (id int)",
		"3_three.down.sql": "SELECT 1",
	} {
		must(os.WriteFile(filepath.Join(at, name), []byte(text), 0o600))
	}
	m, err := migrate.New("file://"+at, "postgres://canon@127.0.0.1:"+os.Args[1]+"/canon?sslmode=disable")
	must(err)
	must(m.Migrate(2))
	want(m.Up() != nil, true)
	version, dirty, err := m.Version()
	must(err)
	want(fmt.Sprint(version, dirty), "3 true")
	must(m.Force(2))
	must(m.Down())
	want(errors.Is(m.Down(), migrate.ErrNoChange), true)
	must(m.Drop())
}
