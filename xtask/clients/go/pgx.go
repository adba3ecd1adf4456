// pgx: types, batches, COPY, transactions, notifications, advisory locks.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	place := "host=127.0.0.1 port=" + os.Args[1] + " user=canon dbname=canon sslmode=disable"
	c, err := pgx.Connect(ctx, place)
	must(err)
	_, err = c.Exec(ctx, "CREATE TABLE px (id int PRIMARY KEY, v text, a int[], t timestamptz, n numeric)")
	must(err)
	now := time.Now().Truncate(time.Microsecond)
	_, err = c.Exec(ctx, "INSERT INTO px VALUES ($1, $2, $3, $4, 1.5)", 1, "x", []int32{1, 2}, now)
	must(err)
	var v string
	var a []int32
	var t time.Time
	must(c.QueryRow(ctx, "SELECT v, a, t FROM px WHERE id = $1", 1).Scan(&v, &a, &t))
	want(v, "x")
	want(a, []int32{1, 2})
	want(t.Equal(now), true)
	rows := [][]any{}
	for i := 2; i < 1000; i++ {
		rows = append(rows, []any{i, fmt.Sprint(i)})
	}
	n, err := c.CopyFrom(ctx, pgx.Identifier{"px"}, []string{"id", "v"}, pgx.CopyFromRows(rows))
	must(err)
	want(n, 998)
	batch := &pgx.Batch{}
	for i := 0; i < 10; i++ {
		batch.Queue("SELECT count(*) FROM px WHERE id > $1", i*100)
	}
	must(c.SendBatch(ctx, batch).Close())
	err = pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO px (id) VALUES (1)")
		return err
	})
	var refused *pgconn.PgError
	want(errors.As(err, &refused) && refused.Code == "23505", true)
	_, err = c.Exec(ctx, "LISTEN news")
	must(err)
	other, err := pgx.Connect(ctx, place)
	must(err)
	_, err = other.Exec(ctx, "SELECT pg_notify('news', 'hello'), pg_advisory_lock(5)")
	must(err)
	heard, err := c.WaitForNotification(ctx)
	must(err)
	want(heard.Payload, "hello")
	var got bool
	must(c.QueryRow(ctx, "SELECT pg_try_advisory_lock(5)").Scan(&got))
	want(got, false)
}
