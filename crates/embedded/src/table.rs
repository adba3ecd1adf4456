//! A table inside a transaction: rows by key, and scans of key ranges along any index.

use base::key::prefix_end;
use base::split::Units;
use base::{Error, KeyRange, Oid, Result, SqlState, Type, Value};
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};
use txn::{Access, Delta, Direction, Outcome, Stop, TableHandle, Txn};

use super::convert::{Datum, FromRow, Row, ToKey, WriteRow};
use super::transaction::Transaction;

/// Columns that `set` sets without an allocation.
const FEW: usize = 8;

/// A table as one transaction sees it.
pub struct Table<'t> {
    tx: &'t Transaction<'t>,
    handle: &'t TableHandle,
}

/// The key of the index at `place` as far as `key` goes. 42601 when it has more columns than the index.
fn encode(
    table: &TableHandle,
    place: usize,
    key: &dyn ToKey,
    whole: bool,
    out: &mut Vec<u8>,
) -> Result<()> {
    let def = &table.table.def;
    let mut parts = def.indexes[place]
        .columns
        .iter()
        .zip(&table.table.keys[place]);
    let count = || {
        let what = format!(
            "the key of index \"{}\" has {} columns, the value another number",
            def.indexes[place].name,
            def.indexes[place].columns.len()
        );
        Error::new(SqlState::SYNTAX_ERROR, what)
    };
    key.each(&mut |d| {
        let (c, k) = parts.next().ok_or_else(count)?;
        // What most keys are made of.
        if let (Datum::Int(x), Type::Int8) = (d, k.ty) {
            k.encode(&Value::Int8(x), out);
            return Ok(());
        }
        let column = &def.columns[c.column as usize];
        let v = d.to_value(column)?;
        if v.is_null() && !k.nullable {
            let what = format!("column \"{}\" of the key is null", column.name);
            return Err(Error::new(SqlState::NOT_NULL_VIOLATION, what).column(&column.name));
        }
        k.encode(&v, out);
        Ok(())
    })?;
    match (whole, parts.next()) {
        (true, Some(_)) => Err(count()),
        _ => Ok(()),
    }
}

fn primary(table: &TableHandle) -> Result<usize> {
    table.primary_place().ok_or_else(|| {
        let what = format!("table \"{}\" has no primary key", table.name());
        Error::new(SqlState::WRONG_OBJECT_TYPE, what)
    })
}

/// Calls `f` with the whole primary key, in the transaction's buffer.
fn with_key<R, X: From<Error>>(
    tx: &Transaction,
    table: &TableHandle,
    key: &dyn ToKey,
    f: impl FnOnce(&[u8]) -> Result<R, X>,
) -> Result<R, X> {
    let mut bytes = tx.take_key();
    let encoded = primary(table).and_then(|place| encode(table, place, key, true, &mut bytes));
    let done = match encoded {
        Ok(()) => f(&bytes),
        Err(e) => Err(e.into()),
    };
    tx.give_key(bytes);
    done
}

/// The values of a new row: what `row` says, and the defaults of the columns that it does not name.
fn new_row(txn: &Txn, table: &TableHandle, row: &impl WriteRow) -> Result<Vec<Value>> {
    let columns = &table.table.def.columns;
    let mut values = vec![Value::Null; columns.len()];
    for (i, c) in columns.iter().enumerate() {
        if c.default.is_some() && !c.dropped && !row.names(&c.name) {
            values[i] = txn.default_of(table, i)?;
        }
    }
    row.write(table, &mut values)?;
    Ok(values)
}

fn add(
    txn: &mut Txn,
    table: &TableHandle,
    key: &[u8],
    column: &str,
    amount: i64,
) -> txn::Result<bool> {
    let def = &table.table.def;
    let at = table.table.column(column).ok_or_else(|| {
        let what = format!(
            "column \"{column}\" of relation \"{}\" does not exist",
            def.name
        );
        Error::new(SqlState::UNDEFINED_COLUMN, what)
    })?;
    let at = usize::from(at);
    let c = &def.columns[at];
    let units = Units::of(c.ty()).ok_or_else(|| {
        let what = format!(
            "column \"{column}\" is of type {}, to which nothing can be added",
            c.ty().ty.typname()
        );
        Error::new(SqlState::DATATYPE_MISMATCH, what)
    })?;
    let out_of_range = || {
        let what = format!("{} out of range", c.ty().ty.typname());
        Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, what).column(&c.name)
    };
    let amount = units.units(&Value::Int8(amount)).ok_or_else(out_of_range)?;
    if table.split(at).is_some() {
        let delta = Delta {
            column: at,
            amount,
            need: None,
        };
        match txn.add_to(table, key, &[delta], 0)? {
            Outcome::Done => return Ok(true),
            // Others may have taken the row away since the snapshot: the exact write finds out.
            Outcome::Refused | Outcome::Exact => {}
        }
    }
    let Some(old) = txn.get(table, key, |row| row.get(at))? else {
        return Ok(false);
    };
    if old.is_null() {
        return Ok(true);
    }
    let new = units
        .units(&old)
        .map(|o| o + amount)
        .filter(|n| units.allows(*n));
    let new = units.value(new.ok_or_else(out_of_range)?);
    txn.update_columns(table, key, &[(at, new)])
}

impl<'t> Table<'t> {
    pub(super) fn new(tx: &'t Transaction<'t>, handle: &'t TableHandle) -> Table<'t> {
        Table { tx, handle }
    }

    /// The table's number, for [`Transaction::table_by_id`].
    pub fn id(&self) -> Oid {
        self.handle.table.def.id
    }

    /// The row under the whole primary key.
    pub fn get<R: FromRow>(&self, key: impl ToKey) -> Result<Option<R>> {
        self.get_with(key, |row| R::from_row(row))?.transpose()
    }

    /// The same, read in place: nothing is copied. `f` must not use the transaction.
    pub fn get_with<R>(&self, key: impl ToKey, f: impl FnOnce(Row<'_>) -> R) -> Result<Option<R>> {
        let table = self.handle;
        with_key(self.tx, table, &key, |key| {
            self.tx
                .reading(|txn| txn.get(table, key, |row| f(Row::stored(table, row))))
        })
    }

    /// Tells which rows (whole primary keys) will be looked up soon, so that their memory is fetched at once instead of one after the
    /// other. Worth it for a handful of keys of a table that is larger than the caches; nothing counts as read.
    pub fn prefetch<K: ToKey>(&self, keys: &[K]) -> Result<()> {
        const AT_ONCE: usize = 16;
        let place = primary(self.handle)?;
        for keys in keys.chunks(AT_ONCE) {
            let mut bytes = self.tx.take_key();
            let mut ends = [0; AT_ONCE];
            for (end, key) in ends.iter_mut().zip(keys) {
                encode(self.handle, place, key, true, &mut bytes)?;
                *end = bytes.len();
            }
            let mut slices = [&[][..]; AT_ONCE];
            let mut from = 0;
            for (slice, end) in slices.iter_mut().zip(&ends[..keys.len()]) {
                *slice = &bytes[from..*end];
                from = *end;
            }
            self.tx.prefetch(self.handle, &slices[..keys.len()])?;
            self.tx.give_key(bytes);
        }
        Ok(())
    }

    /// Whether there is a row under the key.
    pub fn contains(&self, key: impl ToKey) -> Result<bool> {
        Ok(self.get_with(key, |_| ())?.is_some())
    }

    /// Inserts a row. 23505 when its key is taken, 23502 for a NULL, 23503 without its parent.
    pub fn insert(&self, row: impl WriteRow) -> Result<()> {
        self.tx.statement(self.handle, |txn, table| {
            let row = new_row(txn, table, &row)?;
            txn.insert(table, &row)
        })
    }

    /// Inserts a row, or puts it in the place of the one with the same primary key.
    pub fn put(&self, row: impl WriteRow) -> Result<()> {
        self.tx.statement(self.handle, |txn, table| {
            let row = new_row(txn, table, &row)?;
            if table.primary_place().is_some() {
                let mut key = Vec::with_capacity(32);
                table.primary_key(&row, &mut key)?;
                if txn.get(table, &key, |_| ())?.is_some() {
                    return txn.update(table, &key, &row);
                }
            }
            txn.insert(table, &row)
        })
    }

    /// Changes the row under the key to what `f` makes of it; false when there is none. `f` gets the row as `R`, returns all
    /// columns or, by name, some, and may be called again (on a newer row). It must not use the transaction.
    pub fn update<R: FromRow, W: WriteRow>(
        &self,
        key: impl ToKey,
        mut f: impl FnMut(R) -> W,
    ) -> Result<bool> {
        self.tx.statement(self.handle, |txn, table| {
            with_key(self.tx, table, &key, |key| {
                let found = txn.get(table, key, |row| {
                    (R::from_row(Row::stored(table, row)), row.values())
                })?;
                let Some((old, mut values)) = found else {
                    return Ok(false);
                };
                f(old?).write(table, &mut values)?;
                txn.update(table, key, &values)?;
                Ok(true)
            })
        })
    }

    /// Sets columns (by place) of the row under the key; false when there is none. Cheaper than [`Table::update`]: what no constraint
    /// speaks of is written over the old bytes.
    pub fn set(&self, key: impl ToKey, columns: &[(usize, Datum<'_>)]) -> Result<bool> {
        self.tx.statement(self.handle, |txn, table| {
            with_key(self.tx, table, &key, |key| {
                let mut values = [(); FEW].map(|()| (0, Value::Null));
                let value = |(place, d): &(usize, Datum<'_>)| {
                    Ok::<_, Error>((*place, d.to_value(&table.table.def.columns[*place])?))
                };
                if columns.len() > FEW {
                    let values: Vec<_> = columns.iter().map(value).collect::<Result<_>>()?;
                    return txn.update_columns(table, key, &values);
                }
                for (to, c) in values.iter_mut().zip(columns) {
                    *to = value(c)?;
                }
                txn.update_columns(table, key, &values[..columns.len()])
            })
        })
    }

    /// Adds to a number in the row under the key; false when there is none. What a split column is added does not conflict with what others
    /// add to it (`docs/split-values.md`); any other column is read and written. A NULL stays NULL. 22003 out of the column's range, 23514
    /// against a CHECK, 42804 for a column that is no int2, int4, int8 or numeric(p, s).
    pub fn add(&self, key: impl ToKey, column: &str, amount: i64) -> Result<bool> {
        self.tx.statement(self.handle, |txn, table| {
            with_key(self.tx, table, &key, |key| {
                add(txn, table, key, column, amount)
            })
        })
    }

    /// Deletes the row under the key; false when there is none. 23503 when a row references it.
    pub fn delete(&self, key: impl ToKey) -> Result<bool> {
        self.tx.statement(self.handle, |txn, table| {
            with_key(self.tx, table, &key, |key| {
                if txn.get(table, key, |_| ())?.is_none() {
                    return Ok(false);
                }
                txn.delete(table, key)
            })
        })
    }

    /// The rows whose keys lie in `range`: `..`, `a..b`, `a..=b`, [`prefix`]`(p)`, along the primary key unless told otherwise.
    pub fn scan<K: RangeOf>(&self, range: K) -> Scan<'_, 't, K> {
        Scan {
            table: self,
            range,
            index: None,
            direction: Direction::Forward,
            limit: usize::MAX,
        }
    }
}

/// A range of keys. A bound may be the first columns of a key only: an included one then takes in all keys that begin with it.
pub trait RangeOf {
    fn bounds(&self) -> (Bound<&dyn ToKey>, Bound<&dyn ToKey>);
}

/// The keys that begin with these columns; see [`prefix`].
pub struct Prefix<K>(K);

/// The keys that begin with these columns.
pub fn prefix<K: ToKey>(key: K) -> Prefix<K> {
    Prefix(key)
}

macro_rules! ranges {
    ($($t:ty, |$s:ident| $lo:expr, $hi:expr;)*) => { $(impl<K: ToKey> RangeOf for $t {
        fn bounds(&self) -> (Bound<&dyn ToKey>, Bound<&dyn ToKey>) { let $s = self; ($lo, $hi) }
    })* };
}

ranges! {
    Prefix<K>, |s| Bound::Included(&s.0), Bound::Included(&s.0);
    Range<K>, |s| Bound::Included(&s.start), Bound::Excluded(&s.end);
    RangeInclusive<K>, |s| Bound::Included(s.start()), Bound::Included(s.end());
    RangeFrom<K>, |s| Bound::Included(&s.start), Bound::Unbounded;
    RangeTo<K>, |s| Bound::Unbounded, Bound::Excluded(&s.end);
    RangeToInclusive<K>, |s| Bound::Unbounded, Bound::Included(&s.end);
}

impl RangeOf for RangeFull {
    fn bounds(&self) -> (Bound<&dyn ToKey>, Bound<&dyn ToKey>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

/// The range in bytes of the index's keys.
fn key_range(table: &TableHandle, place: usize, range: &dyn RangeOf) -> Result<KeyRange> {
    let bytes = |key: &dyn ToKey| {
        let mut out = Vec::with_capacity(32);
        encode(table, place, key, false, &mut out)?;
        Ok::<_, Error>(out)
    };
    let after = |mut key: Vec<u8>| match prefix_end(&mut key) {
        true => Some(key.into_boxed_slice()),
        false => None,
    };
    let (lo, hi) = range.bounds();
    let empty = || KeyRange {
        lo: Bound::Included([].into()),
        hi: Bound::Excluded([].into()),
    };
    let lo = match lo {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(k) => Bound::Included(bytes(k)?.into()),
        Bound::Excluded(k) => match after(bytes(k)?) {
            Some(b) => Bound::Included(b),
            None => return Ok(empty()),
        },
    };
    let hi = match hi {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Excluded(k) => Bound::Excluded(bytes(k)?.into()),
        Bound::Included(k) => after(bytes(k)?).map_or(Bound::Unbounded, Bound::Excluded),
    };
    Ok(KeyRange { lo, hi })
}

/// A scan about to run; made by [`Table::scan`].
pub struct Scan<'a, 't, K> {
    table: &'a Table<'t>,
    range: K,
    index: Option<&'a str>,
    direction: Direction,
    limit: usize,
}

impl<'a, K: RangeOf> Scan<'a, '_, K> {
    /// Along this index: the range and the order are those of its key (of its bytes, where columns are descending).
    pub fn index(mut self, name: &'a str) -> Self {
        self.index = Some(name);
        self
    }

    /// From the end to the beginning.
    pub fn reverse(mut self) -> Self {
        self.direction = Direction::Backward;
        self
    }

    /// At most this many rows. A scan that ends early has read, for the validation at commit, only up to its last row.
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// The rows as Rust values. 42704 when there is no index of the name.
    pub fn rows<R: FromRow>(self) -> Result<Vec<R>> {
        let mut out = Vec::new();
        self.each(|row| {
            out.push(R::from_row(row)?);
            Ok(true)
        })?;
        Ok(out)
    }

    /// The first row.
    pub fn first<R: FromRow>(self) -> Result<Option<R>> {
        Ok(self.limit(1).rows()?.pop())
    }

    /// Reads the rows in place until `f` returns false. `f` must not use the transaction.
    pub fn each(self, mut f: impl FnMut(Row<'_>) -> Result<bool>) -> Result<()> {
        let table = self.table.handle;
        self.table.tx.reading(|txn| {
            let def = &table.table.def;
            let place = match self.index {
                None => table.primary_place(),
                Some(name) => Some(def.indexes.iter().position(|i| i.name == name).ok_or_else(
                    || {
                        let what = format!(
                            "index \"{name}\" of table \"{}\" does not exist",
                            table.name()
                        );
                        Error::new(SqlState::UNDEFINED_OBJECT, what)
                    },
                )?),
            };
            let (access, range) = match place {
                None => (Access::Primary, KeyRange::all()),
                Some(p) => {
                    let range = key_range(table, p, &self.range)?;
                    let primary = def.indexes[p].primary;
                    (
                        if primary {
                            Access::Primary
                        } else {
                            Access::Index(p)
                        },
                        range,
                    )
                }
            };
            let mut scan = txn::Scan::new(access, range, self.direction);
            let mut left = self.limit;
            let mut go_on = true;
            while go_on && left > 0 {
                // Small first batches: who stops early has not read far.
                let batch = left.min(64);
                let mut given = 0;
                let more = txn.scan(table, &mut scan, batch, &mut |_, row| {
                    given += 1;
                    go_on = go_on && f(Row::stored(table, row))?;
                    Ok(())
                });
                // It writes nothing.
                let more = more.map_err(Stop::only_error)?;
                left -= given;
                if !more {
                    break;
                }
            }
            Ok(())
        })
    }
}
