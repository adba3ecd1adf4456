//! Attacks on the server's memory: statements that collect, texts that grow, plans that multiply, clients that send much and read nothing.

use super::stage::{Attack, Stage};
use protocol::client::Client;
use protocol::message::put_cstr;
use std::io::{self, Write};
use std::time::Duration;

/// See the head of `mod.rs`.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "readers that do not read",
        what: "each asks for a gigabyte of rows and takes none",
        run: no_readers,
    },
    Attack {
        name: "array_agg",
        what: "eight collect hundreds of millions of rows into one array",
        run: |s| {
            s.again(8, "SELECT count(array_length(a, 1)) FROM (SELECT array_agg(repeat('x', 100) || i) AS a FROM generate_series(1, 100000000) i) s");
            Ok(())
        },
    },
    Attack {
        name: "string_agg",
        what: "eight collect hundreds of millions of rows into one text",
        run: |s| {
            s.again(8, "SELECT length(string_agg(repeat('x', 100), ',')) FROM generate_series(1, 100000000) i");
            Ok(())
        },
    },
    Attack {
        name: "json_agg",
        what: "eight collect hundreds of millions of rows into one document",
        run: |s| {
            s.again(8, "SELECT length(json_agg(repeat('x', 100))::text) FROM generate_series(1, 100000000) i");
            Ok(())
        },
    },
    Attack {
        name: "repeat",
        what: "sixteen make texts of 60 MB, and eight times that of each",
        run: |s| {
            s.again(16, "SELECT length(concat(a, a, a, a, a, a, a, a)) FROM (SELECT repeat('x', 60000000) AS a OFFSET 0) s");
            Ok(())
        },
    },
    Attack {
        name: "sort",
        what: "eight sort a hundred million texts",
        run: |s| {
            s.again(8, "SELECT count(*) FROM (SELECT repeat('x', 100) || i AS x FROM generate_series(1, 100000000) i ORDER BY 1 OFFSET 10) s");
            Ok(())
        },
    },
    Attack {
        name: "nested CTEs",
        what: "each of 24 levels names the one before twice",
        run: |s| {
            s.again(4, &nested(24));
            Ok(())
        },
    },
    Attack {
        name: "large parameters",
        what: "each sends a parameter of 200 MB",
        run: large_parameters,
    },
    Attack {
        name: "COPY",
        what: "sixteen copy one row of 200 MB, and hundreds of MB of rows in one transaction",
        run: copy,
    },
    Attack {
        name: "prepared statements",
        what: "each client prepares a thousand large statements",
        run: prepared,
    },
    Attack {
        name: "replication queues",
        what: "replicas that connect and read nothing, while rows are written",
        run: replicas,
    },
];

/// `WITH c0 AS (SELECT 1), c1 AS (a join of c0 with c0), …`
fn nested(levels: usize) -> String {
    let mut sql = "WITH c0 AS NOT MATERIALIZED (SELECT 1 AS x)".to_owned();
    for i in 1..=levels {
        let p = i - 1;
        sql += &format!(
            ", c{i} AS NOT MATERIALIZED (SELECT a.x FROM c{p} a JOIN c{p} b ON a.x = b.x)"
        );
    }
    sql + &format!(" SELECT count(*) FROM c{levels}")
}

/// Waits with what it holds until the attack is over.
fn hold(stage: &Stage) {
    while !stage.over() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn no_readers(stage: &Stage) -> io::Result<()> {
    let mut held = Vec::new();
    for _ in 0..stage.clients {
        match stage.client() {
            Ok(mut c) => {
                c.put(b'Q', |b| {
                    put_cstr(
                        b,
                        "SELECT repeat('x', 1000000) FROM generate_series(1, 1000)",
                    )
                });
                c.send()?;
                held.push(c);
                stage.count("asked");
            }
            Err(_) => stage.count("no login"),
        }
    }
    hold(stage);
    Ok(())
}

fn large_parameters(stage: &Stage) -> io::Result<()> {
    const LONG: usize = 200 << 20;
    let piece = vec![b'x'; 1 << 20];
    stage.each(stage.clients.min(32), |_| {
        while !stage.over() {
            let mut c = stage.client()?;
            c.put(b'P', |b| {
                put_cstr(b, "");
                put_cstr(b, "SELECT length($1::text)");
                b.extend_from_slice(&[0, 0]);
            });
            c.send()?;
            let mut head = vec![b'B'];
            head.extend_from_slice(&((4 + 2 + 2 + 2 + 4 + LONG + 2) as u32).to_be_bytes());
            head.extend_from_slice(&[0, 0, 0, 0, 0, 1]);
            head.extend_from_slice(&(LONG as u32).to_be_bytes());
            let mut socket = c.socket();
            let sent = socket.write_all(&head).and_then(|()| {
                (0..LONG / piece.len()).try_for_each(|_| match stage.over() {
                    true => Err(io::ErrorKind::TimedOut.into()),
                    false => socket.write_all(&piece),
                })
            });
            if sent.and_then(|()| socket.write_all(&[0, 0])).is_err() {
                stage.count("cut off");
                continue;
            }
            c.put(b'E', |b| b.extend_from_slice(&[0, 0, 0, 0, 0]));
            c.put(b'S', |_| {});
            stage.ended(&c.answer());
        }
        Ok(())
    });
    Ok(())
}

fn copy(stage: &Stage) -> io::Result<()> {
    stage.each(16, |i| {
        while !stage.over() {
            let mut c = stage.client()?;
            if let Ok(Err(r)) = c.query("COPY attacked FROM STDIN") {
                stage.count(&r.code);
                continue;
            }
            let line = match i % 2 {
                0 => vec![b'x'; 1 << 20],
                _ => b"1\txxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n".repeat(20_000),
            };
            let mut sent = Ok(());
            for _ in 0..200 {
                if stage.over() || sent.is_err() {
                    break;
                }
                c.put(b'd', |b| b.extend_from_slice(&line));
                sent = c.send();
            }
            if sent.is_err() {
                stage.count("cut off");
                continue;
            }
            // It is never to be committed.
            c.put(b'f', |b| put_cstr(b, "enough"));
            stage.ended(&c.answer());
        }
        Ok(())
    });
    Ok(())
}

fn prepared(stage: &Stage) -> io::Result<()> {
    let held = std::sync::Mutex::new(Vec::<Client>::new());
    stage.each(stage.clients.min(50), |i| {
        let mut c = stage.client()?;
        for n in 0..1000 {
            if stage.over() {
                break;
            }
            let columns: Vec<String> = (0..500).map(|c| format!("{c} + id * {n} + {i}")).collect();
            let sql = format!("SELECT {} FROM points", columns.join(", "));
            let r = c.prepare(&format!("s{n}"), &sql);
            stage.ended(&r);
            if r.is_err() {
                return Ok(());
            }
        }
        held.lock().expect("no thread panics with it").push(c);
        Ok(())
    });
    hold(stage);
    Ok(())
}

fn replicas(stage: &Stage) -> io::Result<()> {
    let mut held = Vec::new();
    let mut admin = Client::connect(stage.address)?;
    for i in 0..8 {
        let name = format!("attacker{i}");
        let parameters = [
            ("user", "canon"),
            ("replication", "canon"),
            ("canon.node_name", name.as_str()),
        ];
        // One that is refused is counted; one that is served reads nothing.
        match Client::connect_with(stage.address, &parameters) {
            Ok(mut c) => {
                c.put(b'Q', |b| put_cstr(b, "START_REPLICATION"));
                c.send()?;
                held.push(c);
            }
            Err(_) => stage.count("no login"),
        }
    }
    while !stage.over() {
        let r = admin.query(
            "INSERT INTO attacked SELECT i, repeat('x', 1000) FROM generate_series(1, 10000) i",
        );
        stage.ended(&r);
        let r = admin.query("DELETE FROM attacked");
        stage.ended(&r);
    }
    Ok(())
}
