//! `canon demo --data DIR`: a shop that is kept is used again, and tables that are not the demonstration's stay as they are.

use canon::{Database, TableBuilder, Type};
use std::path::Path;
use std::process::{Command, Output};

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
