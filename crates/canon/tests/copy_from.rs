//! COPY FROM: what goes in and what does not, in groups of rows; which line an error names; what a load leaves when it has to wait.
//! The expectations are PostgreSQL's.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;
#[allow(dead_code)]
#[path = "wire_abuse/raw.rs"]
mod raw;

use common::{Server, on_postgres};
use helpers::{one, rows, until};
use raw::{Raw, field, message, query};
use tokio_postgres::Client;

/// What a COPY came to: its tag, or SQLSTATE, message and context of its error.
fn copy(c: &mut Raw, sql: &str, data: &[u8]) -> String {
    c.send(&query(sql.as_bytes()));
    let kind = loop {
        let m = c.message().expect("an answer");
        match m.0 {
            b'G' => break m.0,
            b'E' => {
                c.until(b'Z').unwrap();
                return format!("{} {}", field(&m.1, b'C'), field(&m.1, b'M'));
            }
            _ => {}
        }
    };
    assert_eq!(kind, b'G');
    // Messages end where they like.
    for piece in data.chunks(1000) {
        c.send(&message(b'd', piece));
    }
    c.send(&message(b'c', b""));
    let said = c.until(b'Z').expect("an answer");
    let answer = said.iter().find(|m| matches!(m.0, b'E' | b'C'));
    let (kind, body) = answer.expect("an answer");
    if *kind == b'C' {
        return String::from_utf8_lossy(&body[..body.len() - 1]).into_owned();
    }
    let context = body.split(|b| *b == 0).find(|f| f.first() == Some(&b'W'));
    let context = context.map_or("".into(), |f| String::from_utf8_lossy(&f[1..]));
    format!("{} {} [{context}]", field(body, b'C'), field(body, b'M'))
}

async fn table(c: &Client) {
    c.batch_execute(
        "CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1), (2);
         CREATE TABLE t (id int PRIMARY KEY, v varchar(10) NOT NULL, n int CHECK (n < 100), p int REFERENCES parent,
                         s serial, d text DEFAULT 'none', UNIQUE (v));
         CREATE INDEX t_n ON t (n)",
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_row_is_told_before_the_rest_of_long_rows_comes() {
    let server = Server::start().await;
    let client = server.connect().await;
    let table = client.batch_execute("CREATE TABLE long_rows (v text NOT NULL)");
    table.await.unwrap();
    let mut c = Raw::session(&server);
    c.send(&query(b"COPY long_rows FROM STDIN"));
    c.until(b'G').expect("it waits for data");
    c.send(&message(b'd', b"\\N\n"));
    c.send(&message(b'd', &[&[b'x'; 70_000][..], b"\n"].concat()));
    assert_eq!(c.error(), "23502");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_table_line_and_column() {
    let server = Server::start().await;
    let client = server.connect().await;
    table(&client).await;
    let mut c = Raw::session(&server);
    let long = "é".repeat(51);
    let cut = "é".repeat(50);
    let cases = [
        (
            "COPY t (id, v) FROM STDIN",
            "1\ta\nx\tb\n".to_owned(),
            "22P02 invalid input syntax for type integer: \"x\" [COPY t, line 2, column id: \"x\"]".to_owned(),
        ),
        (
            "COPY public.t (id, v) FROM STDIN",
            "1\ta\n2\n".into(),
            "22P04 missing data for column \"v\" [COPY t, line 2: \"2\"]".into(),
        ),
        (
            "COPY t (id, v) FROM STDIN (FORMAT csv, HEADER)",
            "id,v\n1,a\n\n2,b,c\n".into(),
            "22P04 missing data for column \"v\" [COPY t, line 3: \"\"]".into(),
        ),
        (
            "COPY t (id, v) FROM STDIN (FORMAT csv)",
            "1,a\n2,b,c\n".into(),
            "22P04 extra data after last expected column [COPY t, line 2: \"2,b,c\"]".into(),
        ),
        (
            "COPY t (id, v) FROM STDIN",
            format!("1\ta\n2\t{long}\n"),
            format!("22001 value too long for type character varying(10) [COPY t, line 2, column v: \"{cut}...\"]"),
        ),
        (
            "COPY t (id, v) FROM STDIN",
            "1\ta\n2\tb\r\n".into(),
            "22P04 literal carriage return found in data [COPY t, line 2]".into(),
        ),
        (
            "COPY t (id, v) FROM STDIN",
            "1\ta\r\n2\tb\n".into(),
            "22P04 literal newline found in data [COPY t, line 2]".into(),
        ),
        (
            "COPY t (id, v) FROM STDIN (FORMAT csv)",
            "1,a\r\n2,\"b\n\"\r\n3,c\r".into(),
            "22P04 unquoted carriage return found in data [COPY t, line 3]".into(),
        ),
        // A row against the table: its line. Against other rows: its number.
        (
            "COPY t (id, v, n) FROM STDIN",
            "1\ta\t1\n2\tb\t100\n3\tc\t1\n".into(),
            "23514 new row for relation \"t\" violates check constraint \"t_n_check\" [COPY t, line 2: \"2\tb\t100\"]".into(),
        ),
        (
            "COPY t (id, v) FROM STDIN",
            "1\ta\n2\t\\N\n".into(),
            "23502 null value in column \"v\" of relation \"t\" violates not-null constraint [COPY t, line 2: \"2\t\\N\"]".into(),
        ),
        (
            "COPY t (id, v) FROM STDIN",
            "1\ta\n2\tb\n1\tc\n4\td\n".into(),
            "23505 duplicate key value violates unique constraint \"t_pkey\" [COPY t, line 3]".into(),
        ),
        (
            "COPY t (id, v) FROM STDIN",
            "1\ta\n2\tb\n3\tb\n".into(),
            "23505 duplicate key value violates unique constraint \"t_v_key\" [COPY t, line 3]".into(),
        ),
        (
            "COPY t (id, v, p) FROM STDIN",
            "1\ta\t1\n2\tb\t3\n3\tc\t2\n".into(),
            "23503 insert or update on table \"t\" violates foreign key constraint \"t_p_fkey\" []".into(),
        ),
    ];
    for (sql, data, wanted) in &cases {
        assert_eq!(copy(&mut c, sql, data.as_bytes()), *wanted, "{sql}");
        assert_eq!(one(&client, "SELECT count(*) FROM t").await, "0", "{sql}");
    }
    // Far into the data, in another group than the first ones.
    let mut data: String = (1..=1700).map(|i| format!("{i}\tv{i}\n")).collect();
    data.push_str("1200\tlate\n");
    let wanted =
        "23505 duplicate key value violates unique constraint \"t_pkey\" [COPY t, line 1701]";
    assert_eq!(
        copy(&mut c, "COPY t (id, v) FROM STDIN", data.as_bytes()),
        wanted
    );
    let bad = data.replace("\n1650\t", "\nx\t");
    let wanted =
        "22P02 invalid input syntax for type integer: \"x\" [COPY t, line 1650, column id: \"x\"]";
    assert_eq!(
        copy(&mut c, "COPY t (id, v) FROM STDIN", bad.as_bytes()),
        wanted
    );
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "0");
}

/// Every column has its own value or its default, whatever the order they are named in; all indexes find all rows.
#[tokio::test(flavor = "multi_thread")]
async fn groups_of_rows_are_what_single_rows_would_be() {
    let server = Server::start().await;
    let client = server.connect().await;
    table(&client).await;
    let mut c = Raw::session(&server);
    let data: String = (1..=1234)
        .map(|i| format!("{},v{i},{i}\n", i % 100))
        .collect();
    let sql = "COPY t (n, v, id) FROM STDIN (FORMAT csv)";
    assert_eq!(copy(&mut c, sql, data.as_bytes()), "COPY 1234");
    let sums = "SELECT count(*), sum(id), sum(n), sum(s), count(DISTINCT s), min(d), max(d), count(p) FROM t";
    let wanted = [
        "1234", "761995", "59995", "761995", "1234", "none", "none", "0",
    ];
    let got: Vec<String> = rows(&client, sums).await[0]
        .iter()
        .map(|v| v.clone().unwrap())
        .collect();
    assert_eq!(got, wanted);
    for (sql, wanted) in [
        ("SELECT v || s FROM t WHERE id = 1200", "v12001200"),
        ("SELECT id FROM t WHERE v = 'v777'", "777"),
        ("SELECT count(*) FROM t WHERE n = 34", "13"),
    ] {
        assert_eq!(one(&client, sql).await, wanted, "{sql}");
    }
    // Quotes, NULL and empty texts among plain fields.
    let data = b"2001,\"a \"\"b\"\",c\",\n2002,\"\",5\n2003,x,\"6\"\n";
    let sql = "COPY t (id, v, n) FROM STDIN (FORMAT csv)";
    assert_eq!(copy(&mut c, sql, data), "COPY 3");
    let got = rows(&client, "SELECT v, n FROM t WHERE id > 2000 ORDER BY id").await;
    let cell = |s: &str| Some(s.to_owned());
    assert_eq!(
        got,
        [
            vec![cell("a \"b\",c"), None],
            vec![cell(""), cell("5")],
            vec![cell("x"), cell("6")]
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_do_not_meet_the_condition_are_left_out() {
    let server = Server::start().await;
    let client = server.connect().await;
    table(&client).await;
    let mut c = Raw::session(&server);
    let data = "1\ta\t1\n2\tb\t\\N\n3\tc\t50\n4\td\t1000\n";
    for (filter, wanted) in [
        // A row that is left out breaks nothing; a NULL is not true; defaults are seen.
        ("WHERE n < 100", "COPY 2"),
        (
            "(FORMAT text) WHERE n < 100 AND d = 'none' -- said here",
            "COPY 2",
        ),
        ("WHERE v IN ('a', 'b') OR n = 50", "COPY 3"),
        ("WHERE s > 1000000", "COPY 0"),
        ("WHERE false", "COPY 0"),
        ("WHERE n IS NULL OR n < 0", "COPY 1"),
        ("WHERE nosuch > 1", "42703 column \"nosuch\" does not exist"),
        (
            "WHERE n",
            "42804 argument of WHERE must be type boolean, not type integer",
        ),
        ("WHERE n <", "42601 syntax error at end of input"),
        // Nobody gives a COPY values.
        ("WHERE n > $1", "42P02 there is no parameter $1"),
        ("WHERE id = 1 OR (n > $4)", "42P02 there is no parameter $4"),
        ("WHERE v <> '$1' AND n < 100", "COPY 2"),
        (
            "WHERE true) UNION (SELECT true",
            "42601 syntax error at or near \")\"",
        ),
    ] {
        let sql = format!("BEGIN; COPY t (id, v, n) FROM STDIN {filter}");
        let said = copy(&mut c, &sql, data.as_bytes());
        assert_eq!(said, wanted, "{filter}");
        c.send(&query(b"ROLLBACK"));
        c.until(b'Z').unwrap();
    }
    let sql = "COPY t (id, v, n) TO STDOUT WHERE true";
    assert_eq!(
        copy(&mut c, sql, b""),
        "42601 WHERE clause not allowed with COPY TO"
    );
}

/// A load that waits for a row goes on where it stood; nothing of it goes in twice, and nothing is left out.
#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_waits_goes_in_once() {
    let server = Server::start().await;
    let (client, holder) = (server.connect().await, server.connect().await);
    table(&client).await;
    for (end, wanted) in [
        ("ROLLBACK", "COPY 1200"),
        (
            "COMMIT",
            "23505 duplicate key value violates unique constraint \"t_pkey\" [COPY t, line 700]",
        ),
    ] {
        holder
            .batch_execute(
                "BEGIN ISOLATION LEVEL READ COMMITTED; INSERT INTO t (id, v) VALUES (700, 'held')",
            )
            .await
            .unwrap();
        let mut c = Raw::session(&server);
        c.send(&query(b"SELECT pg_backend_pid()"));
        let said = c.until(b'Z').unwrap();
        let row = &said.iter().find(|m| m.0 == b'D').unwrap().1;
        let pid = String::from_utf8(row[6..].to_vec()).unwrap();
        let load = std::thread::spawn(move || {
            let data: String = (1..=1200).map(|i| format!("{i}\tv{i}\n")).collect();
            let sql = "COPY t (id, v) FROM STDIN";
            copy(&mut c, sql, data.as_bytes())
        });
        let waits = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'"
        );
        until(&client, &waits, "1").await;
        holder.batch_execute(end).await.unwrap();
        assert_eq!(load.join().unwrap(), wanted);
        let (n, id) = (if end == "COMMIT" { "1" } else { "1200" }, "700");
        assert_eq!(one(&client, "SELECT count(*) FROM t").await, n);
        let found = format!("SELECT count(*) FROM t WHERE id = {id}");
        assert_eq!(one(&client, &found).await, "1");
        client.batch_execute("TRUNCATE t").await.unwrap();
    }
    if !on_postgres() {
        assert_eq!(one(&client, "SELECT count(*) FROM t").await, "0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_values_of_identity_columns_are_the_datas() {
    let server = Server::start().await;
    let client = server.connect().await;
    let made = "CREATE TABLE i (id int GENERATED ALWAYS AS IDENTITY, x int)";
    client.batch_execute(made).await.unwrap();
    let mut c = Raw::session(&server);
    assert_eq!(copy(&mut c, "COPY i FROM STDIN", b"5\t6\n7\t8\n"), "COPY 2");
    assert_eq!(copy(&mut c, "COPY i (x) FROM STDIN", b"9\n"), "COPY 1");
    let all = "SELECT string_agg(id || '|' || x, ' ' ORDER BY x) FROM i";
    assert_eq!(one(&client, all).await, "5|6 7|8 1|9");
}

/// The bodies of the messages with data.
fn copied(c: &mut Raw, sql: &str) -> Vec<Vec<u8>> {
    c.send(&query(sql.as_bytes()));
    let said = c.until(b'Z').expect("an answer");
    let data = said.into_iter().filter(|m| m.0 == b'd');
    data.map(|m| m.1).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_rows_come_one_a_message_and_the_header_with_the_first() {
    let server = Server::start().await;
    let mut c = Raw::session(&server);
    let head = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
    let row = |n: u8| [0, 1, 0, 0, 0, 4, 0, 0, 0, n];
    let got = copied(&mut c, "COPY (VALUES (1), (2)) TO STDOUT (FORMAT binary)");
    let first = [&head[..], &row(1)].concat();
    assert_eq!(got, [first, row(2).to_vec(), vec![255, 255]]);
    let got = copied(
        &mut c,
        "COPY (SELECT 1 WHERE false) TO STDOUT (FORMAT binary)",
    );
    assert_eq!(got, [[&head[..], &[255, 255]].concat()]);
}
