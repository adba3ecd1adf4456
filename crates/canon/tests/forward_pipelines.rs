//! Pipelines and COPY through a replica, message by message.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;
#[allow(dead_code)]
#[path = "wire_abuse/raw.rs"]
mod raw;

use common::Server;
use helpers::{one, replica_with, rows, signal, skip};
use raw::{Message, Raw, bind, execute, field, framed, message, parse, query, startup, sync};
use tokio_postgres::Client;

/// A server with this ends at once what is under way when it is told to end.
const HASTY: (&str, &str) = ("CANON_SHUTDOWN_TIMEOUT", "10ms");

/// A primary with a table of two rows, a replica, and a session there.
async fn pair() -> (Server, Server, Client) {
    let p = Server::start_with(&[HASTY]).await;
    let r = replica_with(&p, "taker", &[]).await;
    let w = r.connect().await;
    let table = "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)";
    rows(&w, table).await;
    rows(&w, "INSERT INTO t VALUES (1, 0), (2, 0)").await;
    assert_eq!(one(&w, "SELECT count(*) FROM t").await, "2");
    (p, r, w)
}

/// Everything up to ReadyForQuery, without what is said in between of settings.
fn ready(raw: &mut Raw) -> Vec<Message> {
    let seen = raw.until(b'Z').expect("the connection stays");
    seen.into_iter().filter(|m| m.0 != b'S').collect()
}

fn kinds(all: &[Message]) -> String {
    all.iter().map(|m| m.0 as char).collect()
}

fn run(raw: &mut Raw, sql: &str) -> Vec<Message> {
    raw.send(&query(sql.as_bytes()));
    ready(raw)
}

/// More messages than the connections hold, and more replies to them, before the first Sync.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_pipeline_does_not_stop() {
    if skip() {
        return;
    }
    const MESSAGES: usize = 4000;
    let (_p, r, _w) = pair().await;
    let mut raw = Raw::session(&r);
    assert_eq!(kinds(&run(&mut raw, "BEGIN; UPDATE t SET v = 1")), "CCZ");
    let mut writer = Raw(raw.0.try_clone().expect("the same socket"));
    let writes = std::thread::spawn(move || {
        let text = vec![b'x'; 10_000];
        let one = [bind("", "", &[&text]), execute("", 0)].concat();
        writer.send(&parse("", b"SELECT $1::text", &[25]));
        (0..MESSAGES).for_each(|_| writer.send(&one));
        writer.send(&sync());
    });
    let seen = ready(&mut raw);
    writes.join().expect("written");
    assert_eq!(kinds(&seen), format!("1{}Z", "2DC".repeat(MESSAGES)));
    assert_eq!(kinds(&run(&mut raw, "COMMIT")), "CZ");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_answered_between_an_error_and_sync() {
    if skip() {
        return;
    }
    let (_p, r, w) = pair().await;
    let mut raw = Raw::session(&r);
    run(&mut raw, "BEGIN");
    let select = parse("s", b"SELECT id FROM t ORDER BY id", &[]);
    raw.send(&[select, bind("p", "s", &[]), execute("p", 1), sync()].concat());
    assert_eq!(kinds(&ready(&mut raw)), "12DsZ");
    // From now on the portal is here, and the transaction is there.
    run(&mut raw, "UPDATE t SET v = 1");
    let failing = [parse("", b"SELECT 1 / 0", &[]), bind("", "", &[])].concat();
    let rest = [execute("", 0), execute("p", 1), message(b'H', &[])].concat();
    raw.send(&[failing, rest].concat());
    let seen = raw.until(b'E').expect("the connection stays");
    assert_eq!(field(&seen.last().expect("it").1, b'C'), "22012");
    raw.send(&[execute("p", 1), parse("", b"SELECT 2", &[]), sync()].concat());
    let seen = ready(&mut raw);
    assert_eq!((kinds(&seen).as_str(), &*seen[0].1), ("Z", &b"E"[..]));
    assert_eq!(kinds(&run(&mut raw, "ROLLBACK")), "CZ");

    // A message that cannot be read fails the transaction where it runs.
    for bad in [
        [parse("", b"SELECT '\xff'", &[]), sync()].concat(),
        query(b"SELECT '\xff'"),
    ] {
        run(&mut raw, "BEGIN; UPDATE t SET v = 77");
        raw.send(&bad);
        assert_eq!(raw.error(), "22021");
        let seen = run(&mut raw, "COMMIT");
        assert_eq!(&seen[0].1[..], b"ROLLBACK\0");
        assert_eq!(one(&w, "SELECT max(v) FROM t").await, "0");
    }
    // Also outside of one, with messages before it that go there.
    let insert = parse("", b"INSERT INTO t VALUES (3, 3)", &[]);
    let begun = [insert, bind("", "", &[]), execute("", 0)].concat();
    raw.send(&[begun, parse("", b"SELECT '\xff'", &[]), sync()].concat());
    assert_eq!(raw.error(), "22021");
    assert_eq!(kinds(&run(&mut raw, "SELECT 1")), "TDCZ");
    assert_eq!(one(&w, "SELECT count(*) FROM t").await, "2");
}

/// A name that is taken by a portal here is not given to one at the primary.
#[tokio::test(flavor = "multi_thread")]
async fn a_portal_has_one_name_wherever_it_is() {
    if skip() {
        return;
    }
    let (_p, r, w) = pair().await;
    let mut raw = Raw::session(&r);
    let select = parse("s", b"SELECT id FROM t ORDER BY id", &[]);
    raw.send(&[select, sync()].concat());
    ready(&mut raw);
    let again = [bind("p", "s", &[]), execute("p", 0), sync()].concat();
    let declare = query(b"DECLARE p CURSOR FOR SELECT 1");
    for (second, moves) in [(&again, true), (&again, false), (&declare, true)] {
        run(&mut raw, "BEGIN");
        raw.send(&[bind("p", "s", &[]), execute("p", 1), sync()].concat());
        assert_eq!(kinds(&ready(&mut raw)), "2DsZ");
        if moves {
            run(&mut raw, "UPDATE t SET v = 1");
        }
        raw.send(second);
        assert_eq!(raw.error(), "42P03", "{moves}");
        let seen = run(&mut raw, "COMMIT");
        assert_eq!(&seen[0].1[..], b"ROLLBACK\0");
        assert_eq!(one(&w, "SELECT max(v) FROM t").await, "0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_copy_data_waits_for_other_things_too() {
    if skip() {
        return;
    }
    let (p, r, w) = pair().await;
    let second = replica_with(&p, "second", &[HASTY]).await;
    let copy = "COPY t FROM STDIN";
    let begin = |server: &Server| {
        let mut raw = Raw::session(server);
        raw.send(&query(copy.as_bytes()));
        raw.until(b'G').expect("it wants data");
        raw
    };
    // An error comes when it happens, and the rest of the data counts for nothing.
    let mut raw = begin(&r);
    raw.send(&message(b'd', b"1\tone\n"));
    assert_eq!(raw.error(), "22P02");
    raw.send(&[message(b'd', b"3\t3\n"), message(b'c', &[])].concat());
    assert_eq!(kinds(&run(&mut raw, "SELECT 1")), "TDCZ");
    let statement = parse("", copy.as_bytes(), &[]);
    raw.send(&[statement, bind("", "", &[]), execute("", 0), sync()].concat());
    raw.until(b'G').expect("it wants data");
    raw.send(&message(b'd', b"1\tone\n"));
    let seen = raw.until(b'E').expect("the connection stays");
    assert_eq!(field(&seen.last().expect("it").1, b'C'), "22P02");
    raw.send(&[message(b'd', b"3\t3\n"), message(b'c', &[]), sync()].concat());
    assert_eq!(kinds(&ready(&mut raw)), "Z");
    assert_eq!(one(&w, "SELECT count(*) FROM t").await, "2");

    // A cancel, at the replica and at the primary.
    for server in [&r, &p] {
        let mut raw = Raw::connect(server);
        raw.send(&startup(server));
        let hello = raw.until(b'Z').expect("a session");
        let key = hello.iter().find(|m| m.0 == b'K').expect("a key");
        raw.send(&query(copy.as_bytes()));
        raw.until(b'G').expect("it wants data");
        let request = [&80_877_102u32.to_be_bytes()[..], &key.1].concat();
        Raw::connect(server).send(&framed(&request));
        assert_eq!(raw.error(), "57014");
        raw.send(&[message(b'd', b"3\t3\n"), message(b'c', &[])].concat());
        assert_eq!(kinds(&run(&mut raw, "SELECT 1")), "TDCZ");
    }

    // The end of the server that it is at, and of the primary behind it.
    let told = |mut raw: Raw, code| {
        let seen = raw.until(b'E').expect("it is told");
        assert_eq!(field(&seen.last().expect("it").1, b'C'), code);
        raw
    };
    let (at_replica, at_second, at_primary) = (begin(&r), begin(&second), begin(&p));
    signal(&second, "-TERM");
    assert!(told(at_second, "57P01").message().is_none(), "it ends");
    signal(&p, "-TERM");
    assert!(told(at_primary, "57P01").message().is_none(), "it ends");
    let mut raw = told(at_replica, "40003");
    ready(&mut raw);
    raw.send(&message(b'c', &[]));
    assert_eq!(kinds(&run(&mut raw, "SELECT 1")), "TDCZ");
}

/// A text whose first statements run here goes on at the primary where one of them first has to, and nothing of it runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_goes_on_elsewhere_from_where_it_must() {
    if skip() {
        return;
    }
    let (p, r, w) = pair().await;
    let c = p.connect().await;
    rows(&c, "CREATE SEQUENCE q").await;
    rows(&c, "CREATE VIEW drawn AS SELECT nextval('q') AS n").await;
    let mut raw = Raw::session(&r);
    let sum = "SELECT sum(v) FROM t";
    // What is prepared in the text itself.
    let add = "PREPARE add AS UPDATE t SET v = v + 1 WHERE id = 1; EXECUTE add; SELECT v FROM t WHERE id = 1";
    assert_eq!(kinds(&run(&mut raw, add)), "CCTDCZ");
    assert_eq!(one(&w, sum).await, "1");
    assert_eq!(kinds(&run(&mut raw, "EXECUTE add")), "CZ");
    // What only shows when it runs.
    let all = "SELECT v FROM t WHERE id = 2; SELECT n FROM drawn; SELECT 1";
    assert_eq!(kinds(&run(&mut raw, all)), "TDCTDCTDCZ");
    assert_eq!(one(&c, "SELECT nextval('q')").await, "2");
    // After the end of a block that stays here.
    for (begin, end) in [
        ("BEGIN READ ONLY; SELECT 1", "COMMIT"),
        ("BEGIN READ ONLY", "COMMIT AND CHAIN; ROLLBACK"),
        ("BEGIN; SELECT 1 / 0", "ROLLBACK"),
        ("BEGIN; SAVEPOINT s; SELECT 1 / 0", "ROLLBACK TO s"),
    ] {
        for write in ["CREATE TABLE made (id int)", "UPDATE t SET v = v + 1"] {
            let before = one(&c, sum).await;
            run(&mut raw, begin);
            let text = format!("{end}; {write}; SELECT count(*) FROM t");
            let seen = run(&mut raw, &text);
            let ends = "C".repeat(end.matches(';').count() + 2);
            assert_eq!(kinds(&seen), format!("{ends}TDCZ"), "{begin}; {text}");
            run(&mut raw, "COMMIT");
            match write.starts_with('C') {
                true => drop(rows(&c, "DROP TABLE made").await),
                false => assert_ne!(one(&c, sum).await, before),
            }
        }
    }
    // A text of one statement ends what was begun before it, also where that goes on.
    run(&mut raw, "BEGIN READ ONLY");
    let before = one(&c, "SELECT v FROM t WHERE id = 2").await;
    let write = "UPDATE t SET v = v + 1 WHERE id = 2";
    assert_eq!(kinds(&run(&mut raw, &format!("COMMIT; {write}"))), "CCZ");
    assert_ne!(one(&c, "SELECT v FROM t WHERE id = 2").await, before);
    assert_eq!(kinds(&run(&mut raw, write)), "CZ");
    for node in [&p, &r] {
        let mut raw = Raw::session(node);
        let unfinished = [
            parse("", b"SELECT 1", &[]),
            bind("", "", &[]),
            execute("", 0),
        ]
        .concat();
        raw.send(&[unfinished, query(write.as_bytes())].concat());
        assert_eq!(kinds(&ready(&mut raw)), "12DCCZ");
        rows(&c, write).await;
    }
    // It is one transaction, and an error has its place in the text.
    let before = one(&c, sum).await;
    let text = "PREPARE more AS UPDATE t SET v = v + 1;\n EXECUTE more; SELECT nothing";
    let seen = run(&mut raw, text);
    assert_eq!(kinds(&seen), "CCEZ");
    let error = &seen[2];
    let at = text.find("nothing").expect("there") + 1;
    assert_eq!(field(&error.1, b'P'), at.to_string());
    assert_eq!(one(&c, sum).await, before);
}
