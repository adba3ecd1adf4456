//! The workloads' door ([`KvTxn`]) onto a transaction of the library.

use base::{Error, Oid, Result, Type};
use workload::kv::{Cell, Column, KvTxn, RowView, Table};

use embedded as db;
use embedded::{Database, Datum, IntoRow, Row, TableBuilder, ToKey, Transaction, prefix};

/// The tables of a workload, made and looked up once.
pub struct Tables {
    all: &'static [Table],
    ids: Vec<Oid>,
    /// Names of each table's secondary indexes.
    indexes: Vec<Vec<String>>,
}

fn index_name(t: &Table, i: usize) -> String {
    format!("{}_{i}", t.name)
}

impl Tables {
    /// Makes the tables.
    pub fn create(db: &Database, tables: &'static [Table]) -> Result<Tables> {
        Tables::create_split(db, tables, &[], (0, 0))
    }

    /// Makes the tables; these columns (table, column) are split, with so many further records at least and at most.
    pub fn create_split(
        db: &Database,
        tables: &'static [Table],
        split: &[(usize, usize)],
        (least, most): (u16, u16),
    ) -> Result<Tables> {
        for (n, t) in tables.iter().enumerate() {
            let mut b = TableBuilder::new(t.name);
            for (place, (name, column)) in t.columns.iter().enumerate() {
                let ty = match column {
                    Column::Int => Type::Int8,
                    Column::Text => Type::Text,
                };
                b = match split.contains(&(n, place)) {
                    true => b.column(*name, ty).split_with(*name, least, most),
                    false => b.nullable(*name, ty),
                };
            }
            let names = |columns: &'static [usize]| columns.iter().map(|c| t.columns[*c].0);
            if !t.key.is_empty() {
                b = b.primary_key(names(t.key));
            }
            for (i, columns) in t.indexes.iter().enumerate() {
                b = b.index(index_name(t, i), names(columns));
            }
            db.create_table(b)?;
        }
        Tables::open(db, tables)
    }

    /// Tables that are there already.
    pub fn open(db: &Database, tables: &'static [Table]) -> Result<Tables> {
        let indexes = tables
            .iter()
            .map(|t| (0..t.indexes.len()).map(|i| index_name(t, i)));
        let ids = db.read(|tx| {
            let id = |t: &Table| Ok(tx.table(t.name)?.id());
            tables.iter().map(id).collect()
        })?;
        Ok(Tables {
            all: tables,
            ids,
            indexes: indexes.map(Iterator::collect).collect(),
        })
    }

    /// The number of a table.
    pub fn id(&self, table: usize) -> Oid {
        self.ids[table]
    }
}

/// Tables of a workload at most.
const MOST_TABLES: usize = 10;

/// One transaction.
pub struct Kv<'t> {
    tx: &'t Transaction<'t>,
    tables: &'t Tables,
    /// Whether keys that the workload names are fetched ahead.
    ahead: bool,
    /// Those that it has used so far.
    open: [Option<db::Table<'t>>; MOST_TABLES],
}

impl<'t> Kv<'t> {
    pub fn new(tx: &'t Transaction<'t>, tables: &'t Tables, ahead: bool) -> Kv<'t> {
        assert!(tables.ids.len() <= MOST_TABLES, "a workload has few tables");
        Kv {
            tx,
            tables,
            ahead,
            open: [const { None }; MOST_TABLES],
        }
    }

    #[inline]
    fn table(&mut self, n: usize) -> Result<&db::Table<'t>> {
        match &mut self.open[n] {
            Some(t) => Ok(t),
            none => Ok(none.insert(self.tx.table_by_id(self.tables.ids[n])?)),
        }
    }
}

struct Cells<'a>(&'a [Cell<'a>]);

fn datum<'a>(c: &Cell<'a>) -> Datum<'a> {
    match c {
        Cell::Null => Datum::Null,
        Cell::Int(x) => Datum::Int(*x),
        Cell::Text(s) => Datum::Text(s),
    }
}

impl ToKey for Cells<'_> {
    fn each(&self, f: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()> {
        self.0.iter().try_for_each(|c| f(datum(c)))
    }
}

impl IntoRow for Cells<'_> {
    fn each(&self, f: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()> {
        self.0.iter().try_for_each(|c| f(datum(c)))
    }
}

struct View<'a>(Row<'a>);

impl RowView for View<'_> {
    fn int(&self, column: usize) -> i64 {
        let bytes = self.0.bytes(column).expect("not NULL");
        i64::from_le_bytes(bytes.try_into().expect("an int8 column"))
    }

    fn text(&self, column: usize) -> &str {
        std::str::from_utf8(self.bytes(column)).expect("a text column")
    }

    fn bytes(&self, column: usize) -> &[u8] {
        self.0.bytes(column).expect("not NULL")
    }
}

impl KvTxn for Kv<'_> {
    type Error = Error;

    fn get<R>(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        read: impl FnOnce(&dyn RowView) -> R,
    ) -> Result<Option<R>> {
        let t = self.table(table)?;
        t.get_with(Cells(key), |row| read(&View(row)))
    }

    fn expect(&mut self, table: usize, keys: &[&[Cell<'_>]]) {
        if !self.ahead {
            return;
        }
        let mut named = [const { Cells(&[]) }; 16];
        for keys in keys.chunks(named.len()) {
            for (name, key) in named.iter_mut().zip(keys) {
                *name = Cells(key);
            }
            // A hint: what is wrong with a key shows when it is read.
            let t = self.table(table);
            let _ = t.and_then(|t| t.prefetch(&named[..keys.len()]));
        }
    }

    fn update(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        set: &[(usize, Cell<'_>)],
    ) -> Result<bool> {
        let t = self.table(table)?;
        let mut data = [(0, Datum::Null); 8];
        for (to, (place, cell)) in data.iter_mut().zip(set) {
            *to = (*place, datum(cell));
        }
        assert!(set.len() <= data.len(), "a workload sets few columns");
        t.set(Cells(key), &data[..set.len()])
    }

    fn add(&mut self, table: usize, key: &[Cell<'_>], column: usize, amount: i64) -> Result<bool> {
        let name = self.tables.all[table].columns[column].0;
        self.table(table)?.add(Cells(key), name, amount)
    }

    fn put(&mut self, table: usize, row: &[Cell<'_>]) -> Result<()> {
        self.table(table)?.put(Cells(row))
    }

    fn insert(&mut self, table: usize, row: &[Cell<'_>]) -> Result<()> {
        self.tx
            .table_by_id(self.tables.ids[table])?
            .insert(Cells(row))
    }

    fn delete(&mut self, table: usize, key: &[Cell<'_>]) -> Result<bool> {
        self.tx
            .table_by_id(self.tables.ids[table])?
            .delete(Cells(key))
    }

    fn scan(
        &mut self,
        table: usize,
        index: usize,
        key: &[Cell<'_>],
        mut visit: impl FnMut(&dyn RowView) -> bool,
    ) -> Result<()> {
        let tables = self.tables;
        let mut scan = self.table(table)?.scan(prefix(Cells(key)));
        if index > 0 {
            scan = scan.index(&tables.indexes[table][index - 1]);
        }
        scan.each(|row| Ok(visit(&View(row))))
    }
}
