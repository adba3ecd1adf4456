//! Sequences at sites: numbers of ranges that a site draws once for many.

use super::common::{Server, free_port, sqlstate};
use super::helpers::{counted, one, promote, refused, replica_with, rows, skip};
use super::promotions::follow;
use super::{ready, site, stays};
use std::collections::HashSet;
use tokio_postgres::Client;

/// A site, and where it tells how many ranges it has drawn.
async fn counting(primary: &Server, name: &str) -> (Server, String) {
    let http = format!("127.0.0.1:{}", free_port());
    let env = [("CANON_SITE", "true"), ("CANON_HTTP", http.as_str())];
    (replica_with(primary, name, &env).await, http)
}

fn ranges(http: &str) -> u64 {
    counted(http, "canon_site_ranges_total")
}

async fn next(c: &Client, sequence: &str) -> i64 {
    let sql = format!("SELECT nextval('{sequence}')");
    one(c, &sql).await.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_unique_over_three_sites_and_their_primary() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(&p, "CREATE TABLE t (k bigserial PRIMARY KEY, at int)").await;
    let (mut servers, mut pages) = (vec![primary], vec![]);
    for name in ["a", "b", "c"] {
        let (site, http) = counting(&servers[0], name).await;
        servers.push(site);
        pages.push(http);
    }
    ready(&p, &[&servers[1], &servers[2], &servers[3]]).await;
    let mut all = Vec::new();
    for (n, server) in servers.iter().enumerate() {
        for session in 0..3 {
            let c = stays(server).await;
            all.push(tokio::spawn(async move {
                let mut given = Vec::new();
                for i in 0..60 {
                    let sql = match (i + session) % 3 {
                        0 => format!("INSERT INTO t (at) VALUES ({n}) RETURNING k"),
                        1 => "SELECT nextval('t_k_seq')".to_owned(),
                        _ => format!(
                            "INSERT INTO t (at) SELECT {n} FROM generate_series(1, 3) RETURNING k"
                        ),
                    };
                    for row in c.query(&sql, &[]).await.expect("numbers") {
                        given.push(row.get::<_, i64>(0));
                    }
                }
                given
            }));
        }
    }
    let (mut seen, mut count) = (HashSet::new(), 0);
    for session in all {
        let given = session.await.expect("a session ends");
        assert!(given.is_sorted(), "in order at one session: {given:?}");
        count += given.len();
        seen.extend(given);
    }
    assert_eq!(seen.len(), count, "no number is given twice");
    for http in &pages {
        let drawn = ranges(http);
        assert!(drawn >= 1, "a site gives of ranges");
        // 300 numbers: of ranges of 32 there would be ten.
        assert!(drawn <= 12, "{drawn} round trips for 300 numbers");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_serves_many_statements_and_a_long_statement_waits_where_it_stands() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    let made =
        "CREATE SEQUENCE s; CREATE SEQUENCE back INCREMENT BY -3; CREATE SEQUENCE cached CACHE 200;
                CREATE TABLE t (k int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int)";
    rows(&p, made).await;
    let (here, http) = counting(&primary, "here").await;
    ready(&p, &[&here]).await;
    let c = stays(&here).await;
    for n in 1..=10 {
        assert_eq!(next(&c, "s").await, n);
    }
    assert_eq!(ranges(&http), 1, "ten numbers of one range");
    assert_eq!(one(&c, "SELECT currval('s')").await, "10");
    assert_eq!(one(&c, "SELECT lastval()").await, "10");
    for n in 0..10 {
        assert_eq!(next(&c, "back").await, -1 - 3 * n);
    }
    for n in 1..=100 {
        assert_eq!(next(&c, "cached").await, n);
    }
    assert!(ranges(&http) <= 4, "a range has CACHE numbers");
    // More than any range: the statement waits between two of its rows.
    let many = "INSERT INTO t (v) SELECT g FROM generate_series(1, 5000) g RETURNING k";
    let given = c.query(many, &[]).await.expect("rows");
    let given: HashSet<i32> = given.iter().map(|r| r.get(0)).collect();
    assert_eq!(given.len(), 5000);
    assert_eq!(one(&p, "SELECT count(*) FROM t").await, "5000");
    // A block that only draws stays at the site, and one that was declared READ ONLY draws nothing.
    rows(&c, "BEGIN ISOLATION LEVEL READ COMMITTED").await;
    assert_eq!(next(&c, "s").await, 11);
    rows(&c, "ROLLBACK").await;
    rows(&c, "BEGIN READ ONLY").await;
    assert_eq!(refused(&c, "SELECT nextval('s')").await.0, "25006");
    rows(&c, "ROLLBACK").await;
    // A portal that goes on.
    rows(
        &c,
        "BEGIN; DECLARE d CURSOR FOR SELECT nextval('s') FROM generate_series(1, 3000)",
    )
    .await;
    let mut last = 11;
    for _ in 0..30 {
        for row in c.query("FETCH 100 FROM d", &[]).await.expect("rows") {
            assert!(row.get::<_, i64>(0) > last);
            last = row.get(0);
        }
    }
    rows(&c, "COMMIT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_a_sequence_ends_the_ranges_of_sites() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(
        &p,
        "CREATE SEQUENCE s; CREATE SEQUENCE short MAXVALUE 3; CREATE SEQUENCE round MAXVALUE 3 CYCLE; CREATE ROLE clerk",
    )
    .await;
    let (a, b) = (site(&primary, "a").await, site(&primary, "b").await);
    ready(&p, &[&a, &b]).await;
    let (c, d) = (a.connect().await, b.connect().await);
    assert_eq!(next(&c, "s").await, 1);
    assert_eq!(next(&d, "s").await, 33, "of another range");
    // What a session at a site does itself counts for its next number.
    for (change, first) in [
        ("SELECT setval('s', 1000)", 1001),
        ("SELECT setval('s', 10, false)", 10),
        ("ALTER SEQUENCE s RESTART WITH 5000", 5000),
        ("ALTER SEQUENCE s RESTART WITH 7000 INCREMENT BY 10", 7000),
        ("DROP SEQUENCE s; CREATE SEQUENCE s START 40", 40),
    ] {
        rows(&c, change).await;
        assert_eq!(next(&c, "s").await, first, "{change}");
        // Another site knows it once it shows it, before its next range.
        ready(&p, &[&b]).await;
        let other = next(&d, "s").await;
        assert!(other > first, "{change}: {other}");
    }
    // A short sequence is not used up by one site.
    for n in 1..=3 {
        let of = if n == 2 { &d } else { &c };
        assert_eq!(next(of, "short").await, n);
    }
    for s in [&c, &d] {
        assert_eq!(refused(s, "SELECT nextval('short')").await.0, "2200H");
    }
    for n in [1, 2, 3, 1, 2] {
        assert_eq!(next(&c, "round").await, n);
    }
    // Rights are looked at where the number is given, and again at COMMIT.
    rows(&c, "SET ROLE clerk").await;
    assert_eq!(refused(&c, "SELECT nextval('s')").await.0, "42501");
    rows(&c, "RESET ROLE").await;
    rows(
        &p,
        "CREATE TABLE t (k int PRIMARY KEY DEFAULT nextval('s'), v int); GRANT INSERT ON t TO clerk;
         GRANT USAGE ON SEQUENCE s TO clerk",
    )
    .await;
    ready(&p, &[&a]).await;
    rows(&c, "SET ROLE clerk; BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    rows(&c, "INSERT INTO t (v) VALUES (1)").await;
    rows(&p, "REVOKE USAGE ON SEQUENCE s FROM clerk").await;
    let e = c.simple_query("COMMIT").await.expect_err("it may not");
    assert_eq!(sqlstate(&e), "40001");
}

/// Numbers that sessions of two sites got of one sequence, before and after another node became their primary. Nodes run with this fault.
async fn given_over_a_promotion(planted: &str) -> Vec<i64> {
    let env = [("CANON_PLANTED", planted)];
    let at_site = [("CANON_PLANTED", planted), ("CANON_SITE", "true")];
    let old = Server::start_with(&env).await;
    let mut a = replica_with(&old, "a", &at_site).await;
    let mut b = replica_with(&old, "b", &at_site).await;
    let heir = replica_with(&old, "heir", &env).await;
    let p = old.connect().await;
    rows(&p, "CREATE SEQUENCE s").await;
    ready(&p, &[&a, &b, &heir]).await;
    let mut given = Vec::new();
    for before in [true, false] {
        let (c, d) = (stays(&a).await, stays(&b).await);
        // More than a range has.
        for _ in 0..40 {
            given.extend([next(&c, "s").await, next(&d, "s").await]);
        }
        if before {
            promote(&heir, &[]);
            follow(&mut a, "a", &heir).await;
            follow(&mut b, "b", &heir).await;
        }
    }
    given
}

fn twice(given: &[i64]) -> usize {
    let once: HashSet<&i64> = given.iter().collect();
    given.len() - once.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_is_given_once_also_under_another_primary() {
    if skip() {
        return;
    }
    let given = given_over_a_promotion("").await;
    assert_eq!((given.len(), twice(&given)), (160, 0), "{given:?}");
}

/// A site that goes on behind the end of its range, and a primary that does not write down what it has drawn, give numbers twice.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn planted_ranges() {
    if skip() {
        return;
    }
    for planted in ["site.beyond_its_range", "site.range_unlogged"] {
        let given = given_over_a_promotion(planted).await;
        assert!(twice(&given) > 0, "{planted} is not found: {given:?}");
    }
}
