//! Bad input over the wire: an error or a closed connection, never a crash, never a hanging server,
//! and no other client disturbed.
//!
//! Every case is a raw socket that misbehaves. After each one a bystander that was connected all the
//! time must get its answer on the same connection, and a new client must get in. What a case may
//! see of the server is an ErrorResponse (sometimes with a SQLSTATE that it names), the end of the
//! connection, or, where the protocol allows it, nothing; what it must see is said in the case. When all is over no session, no
//! socket and no memory of theirs is left.

mod common;
#[path = "wire_abuse/left.rs"]
mod left;
#[path = "wire_abuse/raw.rs"]
mod raw;

use common::{PATIENCE, Server, on_postgres};
use left::{leaves_nothing, open_files};
use raw::*;
use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;
use tokio_postgres::Client;

/// What it does, and doing it.
type Case = (&'static str, fn(&Server));

/// Runs each case on a blocking thread and looks at the bystander after it.
async fn survives(cases: &[Case]) {
    let mut server = Server::start().await;
    let bystander = server.connect().await;
    bystander
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        .await
        .expect("a table");
    let files = open_files(&server);
    let mut expected = 0i64;
    for (name, case) in cases {
        println!("{name}");
        tokio::task::block_in_place(|| case(&server));
        assert!(server.alive(), "{name}: the server is gone");
        expected += 1;
        let sql = format!("INSERT INTO t VALUES ({expected}, 'bystander')");
        bystander
            .batch_execute(&sql)
            .await
            .unwrap_or_else(|e| panic!("{name}: {e:?}"));
        assert_eq!(count(&bystander).await, expected, "{name}");
        assert_eq!(count(&server.connect().await).await, expected, "{name}");
    }
    leaves_nothing(&server, &bystander, files).await;
}

async fn count(client: &Client) -> i64 {
    let sql = "SELECT count(*) FROM t WHERE v = 'bystander'";
    client
        .query_one(sql, &[])
        .await
        .expect("the bystander is served")
        .get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn startup_packets() {
    survives(&[
        ("connects and leaves", |server| drop(Raw::connect(server))),
        ("garbage", |server| {
            let mut raw = Raw::connect(server);
            raw.send(&[0xff; 512]);
            raw.closes();
        }),
        ("an HTTP request", |server| {
            let mut raw = Raw::connect(server);
            raw.send(b"GET / HTTP/1.1\r\nHost: canon\r\n\r\n");
            raw.closes();
        }),
        ("wrong lengths", |server| {
            for len in [0, 1, 4, 7, -1, i32::MIN, i32::MAX, 1 << 24] {
                let mut raw = Raw::connect(server);
                raw.send(&i32::to_be_bytes(len));
                raw.send(&196_608i32.to_be_bytes());
                raw.closes();
            }
        }),
        ("an unknown protocol", |server| {
            for version in [0x0002_0000, 0x0009_0009, -1, 0] {
                let mut raw = Raw::connect(server);
                raw.send(&framed(&i32::to_be_bytes(version)));
                raw.closes();
            }
        }),
        ("half a packet", |server| {
            let mut raw = Raw::connect(server);
            let packet = startup(server);
            raw.send(&packet[..packet.len() / 2]);
            raw.closes();
        }),
        ("no terminator, no value, invalid UTF-8", |server| {
            for tail in [
                &b"user\0canon"[..],
                b"user\0",
                b"user\0\xff\xfe\0\0",
                b"\0\0\0",
                b"",
            ] {
                let mut raw = Raw::connect(server);
                let mut body = 196_608i32.to_be_bytes().to_vec();
                body.extend(tail);
                raw.send(&framed(&body));
                raw.closes();
            }
        }),
        ("an encryption request, then plain text", |server| {
            let mut raw = Raw::connect(server);
            raw.send(&framed(&80_877_103i32.to_be_bytes()));
            let mut answer = [0];
            raw.read(&mut answer).expect("an answer");
            if answer == *b"N" {
                raw.send(&startup(server));
                raw.until(b'Z').expect("a session");
            }
        }),
        ("an encryption request, then garbage", |server| {
            let mut raw = Raw::connect(server);
            raw.send(&framed(&80_877_103i32.to_be_bytes()));
            raw.read(&mut [0]).expect("an answer");
            raw.send(&[0xff; 64]);
            raw.closes();
        }),
        ("a cancel request for nobody", |server| {
            let mut raw = Raw::connect(server);
            let mut body = 80_877_102i32.to_be_bytes().to_vec();
            body.extend([0x7f; 8]);
            raw.send(&framed(&body));
            raw.closes();
        }),
        ("an unknown user and database", |server| {
            let mut raw = Raw::connect(server);
            let mut body = 196_608i32.to_be_bytes().to_vec();
            body.extend(b"user\0nobody at all\0database\0nowhere\0\0");
            raw.send(&framed(&body));
            raw.closes();
        }),
    ])
    .await;
}

/// A request that comes while nothing runs cancels nothing, also where the next text is known and its plan is of an older schema.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_request_that_is_late_cancels_nothing() {
    survives(&[("late cancel requests", |server| {
        let mut raw = Raw::connect(server);
        raw.send(&startup(server));
        let seen = raw.until(b'Z').expect("a session");
        let key = &seen.iter().find(|m| m.0 == b'K').expect("its key").1;
        let mut asks = 80_877_102i32.to_be_bytes().to_vec();
        asks.extend(key);
        for _ in 0..100 {
            raw.send(&query(b"CREATE TABLE late (a int); DROP TABLE late"));
            raw.until(b'Z').expect("a new schema");
            let mut other = Raw::connect(server);
            other.send(&framed(&asks));
            assert_eq!(other.message(), None);
            let text = [
                parse("", b"SELECT 1", &[]),
                bind("", "", &[]),
                execute("", 0),
                sync(),
            ];
            raw.send(&text.concat());
            let seen = raw.until(b'Z').expect("an answer");
            assert!(seen.iter().all(|m| m.0 != b'E'), "{seen:?}");
        }
    })])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_messages_before_a_login() {
    survives(&[("a long message in place of a proof", |server| {
        for (purpose, kind) in [("control", b'Q'), ("terms", b'd'), ("control", b'P')] {
            let mut raw = Raw::connect(server);
            let mut body = 196_608i32.to_be_bytes().to_vec();
            let asks = format!("user\0x\0replication\0{purpose}\0canon.node\0x\0\0");
            body.extend(asks.as_bytes());
            raw.send(&framed(&body));
            if on_postgres() {
                raw.closes();
                continue;
            }
            raw.until(b'R').expect("a proof is asked for");
            // It is refused by its head: nothing of it is kept.
            raw.send(&[kind]);
            raw.send(&(200i32 << 20).to_be_bytes());
            let (kind, body) = raw.message().expect("a word");
            assert_eq!((kind, &*field(&body, b'C')), (b'E', "08P01"));
        }
    })])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_messages() {
    survives(&[
        ("an unknown type", |server| {
            let mut raw = Raw::session(server);
            raw.send(&message(b'z', b"what"));
            raw.ends();
        }),
        ("wrong lengths", |server| {
            for kind in *b"QPBEDCSHXdcfp" {
                for len in [0, 3, -1, i32::MIN, i32::MAX] {
                    let mut raw = Raw::session(server);
                    raw.send(&[kind]);
                    raw.send(&i32::to_be_bytes(len));
                    raw.send(b"rest");
                    raw.ends();
                }
            }
        }),
        ("a query without an end", |server| {
            let mut raw = Raw::session(server);
            raw.send(&message(b'Q', b"SELECT 1"));
            raw.send(&sync());
            raw.ends();
        }),
        ("a query cut off", |server| {
            let mut raw = Raw::session(server);
            let bytes = query(b"SELECT 1");
            raw.send(&bytes[..bytes.len() - 3]);
            raw.ends();
        }),
        ("truncated bodies", |server| {
            let whole = [
                parse("s", b"SELECT $1::int", &[23]),
                bind("", "s", &[b"1"]),
                execute("", 0),
            ];
            for bytes in whole {
                for cut in 5..bytes.len() {
                    let mut raw = Raw::session(server);
                    raw.send(&message(bytes[0], &bytes[5..cut]));
                    raw.send(&sync());
                    raw.0.shutdown(Shutdown::Write).unwrap();
                    while let Some((kind, _)) = raw.message() {
                        assert!(kind != b'D', "a row for a truncated message");
                    }
                }
            }
        }),
        ("bind that lies about its parameters", |server| {
            let mut raw = Raw::session(server);
            raw.send(&parse("", b"SELECT $1::int", &[]));
            raw.send(&message(b'B', b"\0\0\0\0\xff\xff\x7f\xff\xff\xff1"));
            raw.send(&sync());
            raw.ends();
        }),
        ("the wrong number of parameters", |server| {
            let mut raw = Raw::session(server);
            raw.send(&parse("", b"SELECT $1::int + $2::int", &[]));
            raw.send(&bind("", "", &[b"1"]));
            raw.send(&execute("", 0));
            raw.send(&sync());
            assert_eq!(raw.error(), "08P01");
        }),
        ("what is not there", |server| {
            let mut raw = Raw::session(server);
            raw.send(&bind("", "nosuch", &[]));
            raw.send(&sync());
            assert_eq!(raw.error(), "26000");
            raw.send(&execute("", 0));
            raw.send(&sync());
            assert_eq!(raw.error(), "34000");
            raw.send(&message(b'D', b"Snosuch\0"));
            raw.send(&sync());
            assert_eq!(raw.error(), "26000");
            raw.send(&message(b'C', b"Snosuch\0"));
            raw.send(&sync());
            raw.until(b'Z')
                .expect("closing what is not there is no error");
        }),
        ("describe of what cannot be", |server| {
            let mut raw = Raw::session(server);
            raw.send(&message(b'D', b"Xname\0"));
            raw.send(&sync());
            raw.0.shutdown(Shutdown::Write).unwrap();
            while let Some((kind, _)) = raw.message() {
                assert!(kind != b'T');
            }
        }),
        ("a parameter that does not parse", |server| {
            let mut raw = Raw::session(server);
            raw.send(&parse("", b"SELECT $1::int", &[]));
            raw.send(&bind("", "", &[b"twelve"]));
            raw.send(&execute("", 0));
            raw.send(&sync());
            assert_eq!(raw.error(), "22P02");
        }),
        ("binary parameters of the wrong size", |server| {
            let mut raw = Raw::session(server);
            raw.send(&parse("", b"SELECT $1::int8", &[20]));
            raw.send(&message(b'B', b"\0\0\0\x01\0\x01\0\x01\0\0\0\x02ab\0\0"));
            raw.send(&execute("", 0));
            raw.send(&sync());
            let code = raw.error();
            assert!(["22P03", "08P01"].contains(&code.as_str()), "{code}");
        }),
        ("errors swallow everything up to Sync", |server| {
            let mut raw = Raw::session(server);
            raw.send(&parse("", b"SELEC 1", &[]));
            for _ in 0..50 {
                raw.send(&bind("", "", &[]));
                raw.send(&execute("", 0));
            }
            raw.send(&sync());
            let seen = raw.until(b'Z').expect("the connection stays");
            assert_eq!(seen.iter().filter(|m| m.0 == b'E').count(), 1);
        }),
        ("copy data outside of COPY", |server| {
            let mut raw = Raw::session(server);
            raw.send(&message(b'd', b"1\tx\n"));
            raw.send(&message(b'c', b""));
            raw.send(&query(b"SELECT 1"));
            raw.0.shutdown(Shutdown::Write).unwrap();
            while raw.message().is_some() {}
        }),
        ("COPY that fails, breaks off, or holds nonsense", |server| {
            let mut raw = Raw::session(server);
            raw.send(&query(b"COPY t FROM STDIN"));
            raw.until(b'G').expect("CopyInResponse");
            raw.send(&message(b'd', b"900001\tone\n"));
            raw.send(&message(b'f', b"changed my mind\0"));
            assert_eq!(raw.error(), "57014");
            raw.send(&query(b"COPY t FROM STDIN"));
            raw.until(b'G').expect("CopyInResponse");
            raw.send(&message(b'd', b"900002\tone\textra\n"));
            raw.send(&message(b'c', b""));
            assert_eq!(raw.error(), "22P04");
            raw.send(&query(b"COPY t FROM STDIN"));
            raw.until(b'G').expect("CopyInResponse");
            raw.send(&message(b'd', b"900003\t\xff\xfe\n"));
            raw.send(&message(b'c', b""));
            assert_eq!(raw.error(), "22021");
            raw.send(&query(b"COPY t FROM STDIN"));
            raw.until(b'G').expect("CopyInResponse");
            raw.send(&message(b'd', b"900004\tbroken off"));
            drop(raw);
            let mut raw = Raw::session(server);
            raw.send(&query(b"SELECT id FROM t WHERE id > 900000"));
            let seen = raw.until(b'Z').expect("an answer");
            assert!(seen.iter().all(|m| m.0 != b'D'), "a row of a failed COPY");
        }),
        ("a password that nobody asked for", |server| {
            let mut raw = Raw::session(server);
            raw.send(&message(b'p', b"secret\0"));
            raw.ends();
        }),
        ("invalid UTF-8, and NUL", |server| {
            let mut raw = Raw::session(server);
            raw.send(&query(b"SELECT '\xff\xfe'"));
            assert_eq!(raw.error(), "22021");
            raw.send(&parse("", b"SELECT '\xc3'", &[]));
            raw.send(&sync());
            assert_eq!(raw.error(), "22021");
            for value in [&b"\xed\xa0\x80"[..], b"a\0b"] {
                raw.send(&parse("", b"SELECT $1::text", &[]));
                raw.send(&bind("", "", &[value]));
                raw.send(&execute("", 0));
                raw.send(&sync());
                assert_eq!(raw.error(), "22021");
            }
            raw.send(&query(b"SELECT 1"));
            raw.until(b'D').expect("the session goes on");
        }),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes() {
    survives(&[
        ("SQL of 10 MB: one literal", |server| {
            let mut raw = Raw::session(server);
            let text = "x".repeat(10 << 20);
            raw.send(&query(format!("SELECT length('{text}')").as_bytes()));
            let seen = raw.until(b'Z').expect("the connection stays");
            let row = seen.iter().find(|m| m.0 == b'D').expect("a row");
            assert!(row.1.ends_with(b"10485760"));
        }),
        ("SQL of 10 MB: a long list", |server| {
            let mut raw = Raw::session(server);
            let list = "1,".repeat(100_000);
            raw.send(&query(format!("SELECT 1 WHERE 1 IN ({list}2)").as_bytes()));
            raw.until(b'Z').expect("an answer or an error");
        }),
        (
            "SQL of 10 MB: nothing but spaces, comments, semicolons",
            |server| {
                for text in [" ", ";", "/* */", "-- \n"] {
                    let mut raw = Raw::session(server);
                    raw.send(&query(text.repeat((10 << 20) / text.len()).as_bytes()));
                    raw.until(b'Z').expect("an answer or an error");
                }
            },
        ),
        ("deep nesting", |server| {
            for (open, close) in [
                ("(", ")"),
                ("NOT ", ""),
                ("-", ""),
                ("(SELECT ", ")"),
                ("abs(", ")"),
            ] {
                let mut raw = Raw::session(server);
                let sql = format!(
                    "SELECT {}1{}",
                    format!("{open} ").repeat(100_000),
                    close.repeat(100_000)
                );
                raw.send(&query(sql.as_bytes()));
                raw.until(b'Z')
                    .expect("an answer or an error, not a closed connection");
            }
        }),
        ("long chains", |server| {
            for link in [
                " + 1",
                " OR true",
                " || 'x'",
                "::text",
                " UNION ALL SELECT 1",
            ] {
                let mut raw = Raw::session(server);
                raw.send(&query(
                    format!("SELECT 1{}", link.repeat(20_000)).as_bytes(),
                ));
                raw.until(b'Z')
                    .expect("an answer or an error, not a closed connection");
            }
        }),
        ("deep jsonb and arrays", |server| {
            for (open, close, cast) in [("[", "]", "jsonb"), ("{", "}", "int[]")] {
                let mut raw = Raw::session(server);
                let text = format!("{}{}", open.repeat(200_000), close.repeat(200_000));
                raw.send(&query(format!("SELECT '{text}'::{cast}").as_bytes()));
                raw.until(b'Z')
                    .expect("an answer or an error, not a closed connection");
            }
        }),
        ("65,535 parameters", |server| {
            let mut raw = Raw::session(server);
            let list: Vec<String> = (1..=65_535).map(|n| format!("${n}::int")).collect();
            raw.send(&parse(
                "",
                format!("SELECT 1 WHERE 7 IN ({})", list.join(",")).as_bytes(),
                &[],
            ));
            let values = vec![&b"7"[..]; 65_535];
            raw.send(&bind("", "", &values));
            raw.send(&execute("", 0));
            raw.send(&sync());
            let seen = raw.until(b'Z').expect("an answer or an error");
            assert!(seen.iter().any(|m| m.0 == b'D' || m.0 == b'E'));
        }),
        ("65,536 parameters", |server| {
            for number in ["65536", "4294967297", "99999999999999999999", "0"] {
                let mut raw = Raw::session(server);
                raw.send(&parse("", format!("SELECT ${number}::int").as_bytes(), &[]));
                raw.send(&sync());
                let seen = raw.until(b'Z').expect("an answer or an error");
                let refused = seen.iter().any(|m| m.0 == b'E');
                assert!(number == "65536" || refused || on_postgres(), "${number}");
            }
        }),
        ("many statements and portals", |server| {
            let mut raw = Raw::session(server);
            for i in 0..5000 {
                raw.send(&parse(&format!("s{i}"), b"SELECT 1", &[]));
            }
            raw.send(&sync());
            raw.until(b'Z').expect("an answer or an error");
        }),
        ("a pipeline of 5,000 without a Sync", |server| {
            let mut raw = Raw::session(server);
            let mut reader = Raw(raw.0.try_clone().unwrap());
            let reading = std::thread::spawn(move || {
                let seen = reader.until(b'Z').expect("all answers");
                assert_eq!(seen.iter().filter(|m| m.0 == b'D').count(), 5000);
            });
            raw.send(&parse("", b"SELECT $1::int", &[]));
            for _ in 0..5000 {
                raw.send(&bind("", "", &[b"1"]));
                raw.send(&execute("", 0));
            }
            raw.send(&sync());
            reading.join().unwrap();
        }),
        ("a long row and many columns", |server| {
            let mut raw = Raw::session(server);
            let columns: Vec<String> = (0..1600).map(|n| format!("{n} AS c{n}")).collect();
            raw.send(&query(format!("SELECT {}", columns.join(",")).as_bytes()));
            raw.until(b'Z').expect("an answer or an error");
            raw.send(&query(b"SELECT repeat('x', 2000000000)"));
            raw.until(b'Z').expect("an answer or an error");
        }),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets() {
    survives(&[
        ("a half-closed socket gets its answer", |server| {
            let mut raw = Raw::session(server);
            raw.send(&query(b"SELECT 42"));
            raw.0.shutdown(Shutdown::Write).unwrap();
            let seen = raw.until(b'Z').expect("the answer");
            assert!(seen.iter().any(|m| m.0 == b'D' && m.1.ends_with(b"42")));
            assert!(raw.message().is_none(), "then the end");
        }),
        (
            "half-closed inside a transaction: locks are let go",
            |server| {
                let mut raw = Raw::session(server);
                raw.send(&query(b"BEGIN"));
                raw.until(b'Z').unwrap();
                raw.send(&query(b"INSERT INTO t VALUES (800001, 'open')"));
                raw.until(b'Z').unwrap();
                raw.0.shutdown(Shutdown::Write).unwrap();
                while raw.message().is_some() {}
                let mut other = Raw::session(server);
                other.send(&query(
                    b"INSERT INTO t VALUES (800001, 'mine'); DELETE FROM t WHERE id = 800001",
                ));
                let seen = other.until(b'Z').expect("an answer");
                assert!(seen.iter().all(|m| m.0 != b'E'), "the key is free");
            },
        ),
        ("gone inside a transaction: locks are let go", |server| {
            let mut raw = Raw::session(server);
            raw.send(&query(b"BEGIN; INSERT INTO t VALUES (800002, 'open')"));
            raw.until(b'Z').unwrap();
            drop(raw);
            let mut other = Raw::session(server);
            other.send(&query(
                b"INSERT INTO t VALUES (800002, 'mine'); DELETE FROM t WHERE id = 800002",
            ));
            let seen = other.until(b'Z').expect("an answer");
            assert!(seen.iter().all(|m| m.0 != b'E'), "the key is free");
        }),
        ("Terminate inside a transaction", |server| {
            let mut raw = Raw::session(server);
            raw.send(&query(b"BEGIN; INSERT INTO t VALUES (800003, 'open')"));
            raw.until(b'Z').unwrap();
            raw.send(&message(b'X', b""));
            assert!(raw.message().is_none());
            let mut other = Raw::session(server);
            other.send(&query(b"SELECT id FROM t WHERE id = 800003"));
            let seen = other.until(b'Z').expect("an answer");
            assert!(seen.iter().all(|m| m.0 != b'D'));
        }),
        ("clients that never read", |server| {
            let silent: Vec<Raw> = (0..4)
                .map(|_| {
                    let mut raw = Raw::session(server);
                    raw.0
                        .set_write_timeout(Some(Duration::from_millis(200)))
                        .unwrap();
                    for _ in 0..2000 {
                        if raw
                            .0
                            .write_all(&query(b"SELECT repeat('x', 100000)"))
                            .is_err()
                        {
                            break;
                        }
                    }
                    raw
                })
                .collect();
            let mut other = Raw::session(server);
            for _ in 0..20 {
                other.send(&query(b"SELECT count(*) FROM t"));
                other.until(b'Z').expect("others are served meanwhile");
            }
            drop(silent);
        }),
        ("clients that never finish a message", |server| {
            let slow: Vec<Raw> = (0..20)
                .map(|_| {
                    let mut raw = Raw::session(server);
                    raw.send(&[b'Q', 0, 1, 0, 0, b'S']);
                    raw
                })
                .collect();
            let mut other = Raw::session(server);
            other.send(&query(b"SELECT 1"));
            other.until(b'D').expect("others are served meanwhile");
            drop(slow);
        }),
        ("gone while waiting for a lock", |server| {
            let mut holder = Raw::session(server);
            holder.send(&query(b"BEGIN; INSERT INTO t VALUES (800004, 'held')"));
            holder.until(b'Z').unwrap();
            for _ in 0..5 {
                let mut waiting = Raw::session(server);
                waiting.send(&query(b"INSERT INTO t VALUES (800004, 'waits')"));
                drop(waiting);
            }
            holder.send(&query(b"ROLLBACK"));
            holder.until(b'Z').unwrap();
            // Those that waited may get the key before they notice that nobody listens.
            holder.send(&query(b"DELETE FROM t WHERE id = 800004"));
            holder.until(b'Z').expect("an answer");
        }),
        ("connect and close, 500 times", |server| {
            for i in 0..500 {
                let mut raw = Raw::connect(server);
                if i % 2 == 0 {
                    raw.send(&startup(server));
                }
            }
        }),
    ])
    .await;
}

/// Strangers that say nothing take no place of `max_connections`, and of many the oldest have to go. Each has one file here.
#[tokio::test(flavor = "multi_thread")]
async fn silent_strangers_keep_nobody_out() {
    use std::io::Read;
    if common::on_postgres() {
        return;
    }
    const SEATS: usize = 4;
    let server = Server::start_with(&[("CANON_MAX_CONNECTIONS", "4")]).await;
    let first = server.connect().await;
    let files = left::open_files(&server);
    let silent = |n: usize| -> Vec<Raw> { (0..n).map(|_| Raw::connect(&server)).collect() };
    let strangers = tokio::task::block_in_place(|| silent(400));
    let mut seated = vec![first];
    while seated.len() < SEATS {
        seated.push(server.connect().await);
    }
    let full = common::connect_to(&server.config()).await;
    let full = full.expect_err("all seats are taken");
    assert_eq!(common::sqlstate(&full), "53300");
    // Those that came first were closed; others may stay.
    let more = tokio::task::block_in_place(|| silent(100));
    let mut oldest = strangers.into_iter();
    let mut closed = oldest.next().expect("the first of them");
    let end = tokio::task::block_in_place(|| closed.0.read(&mut [0]));
    assert_eq!(end.expect("closed in good order"), 0);
    let open = left::open_files(&server);
    let most = files + (SEATS - 1) + SEATS + 256;
    // A few may be of the log, or on their way out.
    assert!(open <= most + 16, "{open} files, {files} before");
    for c in &seated {
        c.batch_execute("SELECT 1")
            .await
            .expect("who is in stays in");
    }
    drop((more, oldest));
}

/// Past the limit: 53300, and room again as soon as somebody leaves.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_connections() {
    let mut server = Server::start().await;
    let bystander = server.connect().await;
    let row = bystander
        .query_one("SELECT current_setting('max_connections')", &[])
        .await
        .unwrap();
    let limit: usize = row.get::<_, String>(0).parse().expect("a number");
    assert!(limit <= 2000, "a limit of {limit}");
    let refused = tokio::task::block_in_place(|| {
        let mut open = Vec::new();
        let mut refused = None;
        for _ in 0..limit + 10 {
            let mut raw = Raw::connect(&server);
            raw.send(&startup(&server));
            loop {
                match raw.message() {
                    Some((b'E', body)) => {
                        refused = Some(field(&body, b'C'));
                        break;
                    }
                    Some((b'Z', _)) => break,
                    Some(_) => {}
                    None => panic!("closed without a word"),
                }
            }
            if refused.is_some() {
                break;
            }
            open.push(raw);
        }
        assert!(
            open.len() < limit,
            "{} connections under a limit of {limit}",
            open.len()
        );
        refused
    });
    assert_eq!(refused.as_deref(), Some("53300"));
    bystander
        .batch_execute("SELECT 1")
        .await
        .expect("who is in stays in");
    assert!(server.alive());
    let mut config = server.config();
    config.connect_timeout(Duration::from_secs(5));
    let deadline = std::time::Instant::now() + PATIENCE;
    while common::connect_to(&config).await.is_err() {
        assert!(
            std::time::Instant::now() < deadline,
            "the places are not given back"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
