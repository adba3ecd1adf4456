//! `canon demo`: it stays up after its load with a line for psql that works. With `--data DIR` a shop that is kept is used again, and tables that
//! are not the demonstration's stay as they are.

mod common;
#[path = "clients/programs.rs"]
mod programs;

use canon::{Database, TableBuilder, Type};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn demo(data: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_canon"))
        .args(["demo", "--exit", "--seconds", "1", "--clients", "2"])
        .args(["--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .output()
        .expect("the demonstration runs")
}

fn said(o: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&o.stdout),
        String::from_utf8_lossy(&o.stderr)
    )
}

fn orders(data: &Path) -> usize {
    let db = Database::open(data, Default::default()).unwrap();
    let mut count = 0;
    db.read(|tx| {
        count = 0;
        tx.table("orders")?.scan(..).each(|_| {
            count += 1;
            Ok(true)
        })
    })
    .unwrap();
    count
}

#[test]
fn a_kept_shop_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let first = demo(dir.path());
    assert!(first.status.success(), "{}", said(&first));
    assert!(said(&first).contains("Loaded a shop"), "{}", said(&first));
    let sold = orders(dir.path());
    assert!(sold > 0);
    let second = demo(dir.path());
    assert!(second.status.success(), "{}", said(&second));
    let found = format!("Found the shop of an earlier run, with {sold} orders");
    assert!(said(&second).contains(&found), "{}", said(&second));
    assert!(said(&second).contains("The books balance"));
    assert!(
        orders(dir.path()) > sold,
        "the earlier orders are still there"
    );
}

#[test]
fn tables_of_others_are_left_alone() {
    for name in ["accounts", "demo_shop"] {
        let dir = tempfile::tempdir().unwrap();
        {
            let db = Database::open(dir.path(), Default::default()).unwrap();
            let table = TableBuilder::new(name).column("id", Type::Int8);
            db.create_table(table.primary_key(["id"])).unwrap();
            db.transaction(|tx| tx.table(name)?.insert((7i64,)))
                .unwrap();
        }
        let refused = demo(dir.path());
        assert!(!refused.status.success());
        for part in ["42P07", name, "--data"] {
            assert!(said(&refused).contains(part), "{}", said(&refused));
        }
        let db = Database::open(dir.path(), Default::default()).unwrap();
        assert!(db.read(|tx| tx.table(name)?.contains(7i64)).unwrap());
        assert!(!db.has_table("orders"));
    }
}

/// Ended whatever happens to the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn it_stays_up_with_a_line_for_psql_that_works() {
    let demo = Command::new(env!("CARGO_BIN_EXE_canon"))
        .args(["demo", "--seconds", "1", "--clients", "2"])
        .args(["--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut demo = Ends(demo.expect("the demonstration runs"));
    let mut lines = BufReader::new(demo.0.stdout.take().expect("piped")).lines();
    let line = lines.by_ref().find_map(|l| {
        let l = l.expect("text");
        l.trim().strip_prefix("psql ").map(str::to_owned)
    });
    let line = line.expect("it says how to look around");
    let mut psql = Command::new(programs::pg_program("psql"));
    psql.args(line.split_whitespace());
    psql.args(["-X", "-At", "-c", "SELECT count(*) > 0 FROM orders"]);
    let done = psql.output().expect("psql runs");
    assert_eq!(
        String::from_utf8_lossy(&done.stdout).trim(),
        "t",
        "{done:?}"
    );
    // Ctrl-C ends it, in order.
    let pid = demo.0.id().to_string();
    let told = Command::new("kill").args(["-INT", &pid]).status();
    assert!(told.expect("kill runs").success());
    lines.for_each(drop);
    assert!(demo.0.wait().expect("it ends").success());
}
