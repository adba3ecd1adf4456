//! What a transaction needs of a table: its definition, its storage, its indexes, its compiled rules.

use base::key::{MAX_KEY_BYTES, hash};
use base::schema::{IndexColumn, Schema, Table};
use base::split::{Mode, Units};
use base::{Error, Oid, RelId, Result, SqlState, Value};
use std::sync::{Arc, OnceLock};
use store::{Guard, IndexSpec, Record, SecondaryIndex, Storage};

use crate::locks::LockName;
use crate::split::walk::Parts;

/// Compiled CHECK constraints and defaults of a table; `sql` makes them from the text in the schema.
pub trait TableRules: Send + Sync {
    /// Fails with 23514 naming the constraint when a CHECK is false for this row (all columns, dropped ones NULL), and when a value does not
    /// keep its domain's rules (23502, 23514).
    fn check(&self, row: &[Value]) -> Result<()>;

    /// The same for a row that was there before: CHECKs that are NOT VALID are left out.
    fn check_stored(&self, row: &[Value]) -> Result<()> {
        self.check(row)
    }

    /// The value of a column's DEFAULT; NULL when it has none.
    fn default(&self, column: usize) -> Result<Value>;

    /// Writes the generated columns of a row whose other columns are as they shall be.
    fn generate(&self, _row: &mut [Value]) -> Result<()> {
        Ok(())
    }
}

/// Turns the expressions of a table into [`TableRules`].
pub trait RuleCompiler: Send + Sync {
    /// Called once per table and schema version, when the first row is written.
    fn compile(&self, schema: &Schema, table: &Table) -> Result<Arc<dyn TableRules>>;
}

/// Space of the locks on tables (as opposed to rows).
pub(crate) const TABLE_SPACE: u32 = 0;

/// A split column with a place for further records.
pub(crate) struct Spread {
    pub column: usize,
    /// The column of the row that counts them.
    pub count: usize,
    pub units: Units,
    /// Most further records of a value, and how many each gets that has deltas.
    pub max: u16,
    pub min: u16,
    /// In the mode `rows`, the limits of the records.
    pub(crate) rows: Option<Parts>,
    /// The hidden table.
    pub table: Arc<TableHandle>,
}

/// A table as transactions use it; shared, one per schema version.
pub struct TableHandle {
    pub table: Arc<Table>,
    pub storage: Arc<Storage>,
    /// One per `TableDef::indexes`; none in the place of the primary key.
    pub indexes: Vec<Option<Arc<SecondaryIndex>>>,
    /// Columns (places) of the primary key.
    pub(crate) key_columns: Vec<usize>,
    pub(crate) primary: Option<usize>,
    /// For each column whether no constraint but NOT NULL says anything about it.
    pub(crate) free: Box<[bool]>,
    /// Columns (places) that an index or a foreign key looks at.
    pub(crate) bound: Box<[u16]>,
    /// For each column that is split, its units and bounds.
    pub(crate) splits: Box<[Option<Units>]>,
    /// The split columns whose values may have further records.
    pub(crate) spreads: Box<[Spread]>,
    /// Of a hidden table: the table and the column whose further records are its rows.
    pub(crate) records_of: Option<(Oid, u16)>,
    /// Whether rows have to keep CHECKs or the rules of domains.
    pub(crate) checked: bool,
    /// Whether the table has generated columns.
    pub(crate) generates: bool,
    /// `Storage::shape` under which this handle may write.
    pub(crate) shape: u64,
    /// Of one session, its rows among the writes of transactions ([`crate::temp`]).
    pub(crate) temporary: bool,
    rules: OnceLock<Option<Arc<dyn TableRules>>>,
}

impl TableHandle {
    pub(crate) fn new(
        table: Arc<Table>,
        storage: Arc<Storage>,
        indexes: Vec<Option<Arc<SecondaryIndex>>>,
        shape: u64,
        hidden: &dyn Fn(Oid) -> Option<Arc<TableHandle>>,
    ) -> TableHandle {
        let primary = table.primary();
        let columns = |i: usize| {
            table.def.indexes[i]
                .columns
                .iter()
                .map(|c| c.column as usize)
                .collect()
        };
        let def = &table.def;
        let generates = def.columns.iter().any(|c| c.generated);
        let mut free = vec![def.checks.is_empty() && !generates; def.columns.len()];
        let unique = def.indexes.iter().filter(|i| i.unique);
        for (i, c) in def.columns.iter().enumerate() {
            free[i] &= c.domain.is_none();
        }
        unique
            .flat_map(|i| i.columns.iter().map(|c| c.column))
            .chain(
                def.foreign_keys
                    .iter()
                    .flat_map(|f| f.columns.iter().copied()),
            )
            .for_each(|c| free[c as usize] = false);
        let indexed = def.indexes.iter().flat_map(|i| i.columns.iter());
        let keys = def.foreign_keys.iter().flat_map(|f| f.columns.iter());
        let bound = indexed.map(|c| c.column).chain(keys.copied());
        // Without a primary key a column that is set split waits for one.
        let splits = def.columns.iter().map(|c| {
            let split = c
                .split
                .as_ref()
                .filter(|_| !c.dropped && primary.is_some())?;
            Some(Units::of(c.ty())?.within(split))
        });
        let splits: Box<[Option<Units>]> = splits.collect();
        let spreads = def.columns.iter().enumerate().filter_map(|(column, c)| {
            let (units, split) = (splits[column]?, c.split.as_ref()?);
            let records = split.records?;
            Some(Spread {
                column,
                count: usize::from(records.count),
                units,
                max: split.max,
                min: split.min,
                rows: (split.mode == Mode::Rows).then(|| Parts::of(&units, split)),
                table: hidden(records.table)?,
            })
        });
        TableHandle {
            spreads: spreads.collect(),
            records_of: base::split_records::records_of(def),
            bound: bound.collect(),
            splits,
            checked: !def.checks.is_empty() || def.columns.iter().any(|c| c.domain.is_some()),
            generates,
            free: free.into(),
            key_columns: primary.map(columns).unwrap_or_default(),
            primary,
            storage,
            indexes,
            shape,
            temporary: false,
            table,
            rules: OnceLock::new(),
        }
    }

    /// Whether it is a temporary table.
    pub fn is_temporary(&self) -> bool {
        self.temporary
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.table.def.name
    }

    /// How the keys of the secondary index at this place of `TableDef::indexes` are made.
    pub fn index_spec(table: &Table, place: usize) -> IndexSpec {
        let index = &table.def.indexes[place];
        let columns = index.columns.iter().zip(&table.keys[place]);
        IndexSpec {
            id: index.id,
            unique: index.unique,
            nulls_not_distinct: index.nulls_not_distinct,
            layout: table.layout.clone(),
            columns: columns.map(|(c, k)| (c.column as usize, *k)).collect(),
        }
    }

    /// Whether a column can be changed in the bytes of a row: no constraint but NOT NULL says anything about it.
    pub fn is_free(&self, column: usize) -> bool {
        self.free[column]
    }

    /// Whether rows have columns that are computed from the others: see [`crate::Txn::generate`].
    pub fn generates(&self) -> bool {
        self.generates
    }

    /// Whether a column is split.
    pub(crate) fn has_splits(&self) -> bool {
        self.splits.iter().any(Option::is_some)
    }

    /// The units of a split column and the bounds of its values; none: the column is not split.
    pub fn split(&self, column: usize) -> Option<&Units> {
        self.splits[column].as_ref()
    }

    /// The place of the primary key in `TableDef::indexes`; none: hidden row ids.
    #[inline]
    pub fn primary_place(&self) -> Option<usize> {
        self.primary
    }

    /// The rules, compiled at the first call.
    pub fn rules(
        &self,
        schema: &Schema,
        compiler: Option<&dyn RuleCompiler>,
    ) -> Result<Option<&Arc<dyn TableRules>>> {
        if let Some(r) = self.rules.get() {
            return Ok(r.as_ref());
        }
        let def = &self.table.def;
        let none = !self.checked && def.columns.iter().all(|c| c.default.is_none());
        let made = match (none, compiler) {
            (true, _) => None,
            (false, Some(c)) => Some(c.compile(schema, &self.table)?),
            (false, None) if !self.checked && !self.generates => None,
            (false, None) => {
                let what = format!(
                    "table \"{}\" has CHECK constraints, domains or generated columns, and this build cannot evaluate SQL",
                    def.name
                );
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what));
            }
        };
        Ok(self.rules.get_or_init(|| made).as_ref())
    }

    /// Appends the primary-index key of a row with a primary key; a table without one has no key in its values.
    pub fn primary_key(&self, row: &[Value], out: &mut Vec<u8>) -> Result<()> {
        let place = self.primary.expect("asked of a table with a primary key");
        let at = out.len();
        for (c, k) in self.key_columns.iter().zip(&self.table.keys[place]) {
            k.encode(&row[*c], out);
        }
        self.check_key(out.len() - at, &self.table.def.indexes[place].name)
    }

    /// Appends the primary-index key of a new row: of its values, or the next row id.
    pub(crate) fn new_key(&self, row: &[Value], out: &mut Vec<u8>) -> Result<()> {
        match self.primary {
            Some(_) => self.primary_key(row, out),
            None => {
                out.extend_from_slice(&self.storage.new_row_id().to_be_bytes());
                Ok(())
            }
        }
    }

    /// The columns of this row's key in the unique index at `place`; none where a NULL makes it distinct from all others.
    pub(crate) fn unique_key(&self, place: usize, row: &[Value]) -> Option<Vec<u8>> {
        let def = &self.table.def.indexes[place];
        let is_null = |c: &IndexColumn| row[c.column as usize].is_null();
        if !def.nulls_not_distinct && def.columns.iter().any(is_null) {
            return None;
        }
        let mut columns = Vec::new();
        for (c, k) in def.columns.iter().zip(&self.table.keys[place]) {
            k.encode(&row[c.column as usize], &mut columns);
        }
        Some(columns)
    }

    pub(crate) fn check_key(&self, bytes: usize, index: &str) -> Result<()> {
        if bytes <= MAX_KEY_BYTES {
            return Ok(());
        }
        let what = format!(
            "index row size {bytes} exceeds the maximum {MAX_KEY_BYTES} for index \"{index}\""
        );
        Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, what))
    }

    pub(crate) fn row_lock(&self, key: &[u8]) -> LockName {
        LockName {
            space: self.storage.id,
            hash: hash(self.storage.id, key),
        }
    }

    /// The lock on the table: a change of its schema holds it, and LOCK TABLE.
    pub(crate) fn table_lock(&self) -> LockName {
        LockName {
            space: TABLE_SPACE,
            hash: u64::from(self.table.def.id),
        }
    }

    /// The lock on a unique key of a secondary index.
    pub(crate) fn unique_lock(index: &SecondaryIndex, columns: &[u8]) -> LockName {
        LockName {
            space: index.spec.id,
            hash: hash(index.spec.id, columns),
        }
    }

    /// A key as errors show it: `(a, b)=(1, x)`, from the columns of a row.
    pub fn describe(&self, columns: &[usize], row: &[Value]) -> String {
        let names: Vec<&str> = columns
            .iter()
            .map(|c| self.table.def.columns[*c].name.as_str())
            .collect();
        let values: Vec<String> = columns.iter().map(|c| plain(&row[*c])).collect();
        format!("({})=({})", names.join(", "), values.join(", "))
    }

    /// Whether rows that were made for that handle of the table are rows for this one.
    pub(crate) fn has_columns_of(&self, other: &TableHandle) -> bool {
        let kinds = |t: &TableHandle| {
            let columns = t.table.def.columns.iter();
            let kinds = columns.map(|c| (c.type_oid, c.dropped));
            kinds.collect::<Vec<_>>()
        };
        kinds(self) == kinds(other)
    }

    /// The primary key of a stored row, as errors show it.
    pub fn describe_row(&self, row: &[u8]) -> String {
        if self.primary.is_none() || !self.table.layout.knows(row) {
            return "(row)".into();
        }
        self.describe(&self.key_columns, &self.table.layout.row(row).values())
    }

    /// The key of a record as errors show it, from its newest row.
    pub(crate) fn describe_record(&self, record: &Record, guard: &Guard) -> String {
        let mut version = record.newest(guard);
        while let Some(v) = version.filter(|v| v.row().is_none()) {
            version = v.older(guard);
        }
        let row = version.and_then(|v| v.row());
        row.map_or_else(|| "(row)".into(), |r| self.describe_row(r))
    }
}

/// A value as error details show it; types whose text depends on settings are shown in a plain form.
pub(crate) fn plain(v: &Value) -> String {
    match v {
        Value::Null => "null".into(),
        Value::Bool(b) => if *b { "t" } else { "f" }.into(),
        Value::Int2(x) => x.to_string(),
        Value::Int4(x) => x.to_string(),
        Value::Int8(x) => x.to_string(),
        Value::Float4(x) => x.to_string(),
        Value::Float8(x) => x.to_string(),
        Value::Oid(x) => x.to_string(),
        Value::Numeric(n) => n.to_string(),
        Value::Text(s) => s.to_string(),
        Value::Json(s) => s.to_string(),
        Value::Enum(ty, rank) => ty.label(*rank).unwrap_or_default().into(),
        Value::Packed(p) => {
            let mut s = String::new();
            p.kind().write_text(p.form(), &mut s);
            s
        }
        Value::Uuid(u) => {
            let h: String = u.iter().map(|b| format!("{b:02x}")).collect();
            format!(
                "{}-{}-{}-{}-{}",
                &h[..8],
                &h[8..12],
                &h[12..16],
                &h[16..20],
                &h[20..]
            )
        }
        other => format!("{other:?}"),
    }
}

/// The handle that a transaction writes through: the caller's, if it is the one of the transaction's schema. Not an `Arc`, because
/// all threads would count in one place.
pub(crate) enum Handle<'t> {
    Same(&'t TableHandle),
    Newer(Arc<TableHandle>),
}

impl std::ops::Deref for Handle<'_> {
    type Target = TableHandle;

    fn deref(&self) -> &TableHandle {
        match self {
            Handle::Same(t) => t,
            Handle::Newer(t) => t,
        }
    }
}

/// Tables by number.
pub type Tables = base::PMap<Oid, Arc<TableHandle>>;

/// One version of the schema with the tables' storages. `txn` sees the version of its snapshot, with its own DDL on top.
#[derive(Default)]
pub struct Catalog {
    pub schema: Arc<Schema>,
    pub tables: Tables,
}

impl Catalog {
    /// The table of this number.
    #[inline]
    pub fn table(&self, id: Oid) -> Option<&Arc<TableHandle>> {
        self.tables.get(&id)
    }

    /// The table whose rows are in this storage. Only one that was truncated or rewritten since it was made is looked for.
    pub fn of_storage(&self, id: RelId) -> Option<&Arc<TableHandle>> {
        let is = |t: &&Arc<TableHandle>| t.storage.id == id;
        let mut all = self.tables.values();
        self.tables.get(&id).filter(is).or_else(|| all.find(is))
    }
}
