//! Split values beside plain ones, in the library.
//!
//! | load | what |
//! |---|---|
//! | `tpcc, 1 warehouse` | half NewOrder, half Payment, by 2 and 8 threads at one warehouse, at REPEATABLE READ: `w_ytd` and `d_ytd` plain, and split (thesis §4.5.1) |
//! | `read` | one value that is read by its key: plain, and with 1, 8 and 64 records |
//!
//! The thesis ran its TPC-C at REPEATABLE READ, too. At SERIALIZABLE a Payment that reads a warehouse's name through the library has read the
//! whole row, and what is added to the row's sum fails it.
//!
//! Left out on purpose: SQL. A read in SQL says which columns it looks at.

use base::{Isolation, Result};
use workload::kv::{Cell, Column, KvTxn, Table};
use workload::tpcc::Tpcc;

use super::adapter::{Kv, Tables};
use super::figures::Lines;
use super::options::{BenchOptions, Mode, open};
use super::replay::spread;
use super::run::{self, Ended};

const COUNTER: &[Table] = &[Table {
    name: "counter",
    columns: &[("id", Column::Int), ("value", Column::Int)],
    key: &[0],
    indexes: &[],
}];

/// How all loads are run.
const MODE: Mode = Mode::ALL[1];

pub fn run(options: &BenchOptions, out: &mut Lines<'_>) -> Result<()> {
    for split in [false, true] {
        let name = match split {
            true => "tpcc, 1 warehouse, split",
            false => "tpcc, 1 warehouse, plain",
        };
        if name.contains(&options.only) {
            tpcc(name, split, options, out)?;
        }
    }
    for further in [None, Some(0), Some(7), Some(63)] {
        let name = match further {
            None => "read, plain".to_owned(),
            Some(n) => format!("read, {} records", n + 1),
        };
        if name.contains(&options.only) {
            read(&name, further, options, out)?;
        }
    }
    Ok(())
}

fn tpcc(name: &str, split: bool, options: &BenchOptions, out: &mut Lines<'_>) -> Result<()> {
    let db = open(options)?;
    let tpcc = Tpcc {
        split,
        ..Tpcc::new(1)
    };
    run::load_tpcc(&db, &tpcc)?;
    let how = (MODE, Isolation::RepeatableRead);
    for threads in [2, 8] {
        run::tpcc(&db, &tpcc, name, threads, how, options, out)?;
    }
    run::check_tpcc(&db, &tpcc)
}

fn read(
    name: &str,
    further: Option<u16>,
    options: &BenchOptions,
    out: &mut Lines<'_>,
) -> Result<()> {
    let db = open(options)?;
    let tables = match further {
        Some(n) => Tables::create_split(&db, COUNTER, &[(0, 1)], (n, n))?,
        None => Tables::create(&db, COUNTER)?,
    };
    db.transaction(|tx| Kv::new(tx, &tables, false).insert(0, &[Cell::Int(-1), Cell::Int(0)]))?;
    if let Some(n) = further {
        spread(&db, &tables, n)?;
    }
    run::measure(
        &db,
        name,
        1,
        (MODE, Isolation::ReadCommitted),
        options,
        out,
        |_| (),
        |(), tx| {
            let mut kv = Kv::new(tx, &tables, false);
            let value = kv.get(0, &[Cell::Int(-1)], |row| row.int(1))?;
            std::hint::black_box(value);
            Ok::<(), Ended>(())
        },
        |()| {},
    )
}
