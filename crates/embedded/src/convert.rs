//! Rust values as keys, rows and columns, and back.
//!
//! A [`Datum`] is a value on its way in: borrowed, not yet of the column's exact type. It becomes a column's value with the column's
//! checks: an integer must fit (22003), text must not be longer than `varchar(n)` allows (22001), another kind of value is
//! 42804. Keys and rows are lists of data: scalars, tuples of up to twelve, slices of values, and for rows
//! [`row!`](crate::row) with columns by name.
//!
//! `numeric(p, s)` rounds and has its limit (22003), `timestamp(n)` keeps n digits of seconds, as in SQL.
//!
//! Left out on purpose: conversions between kinds (a number for a text column), which SQL does.

use base::schema::Column;
use base::{Error, Oid, Result, RowRef, SqlState, Type, Value};
use txn::TableHandle;

/// A value on its way into a column.
#[derive(Clone, Copy, Debug)]
pub enum Datum<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// Any other type, as it is.
    Value(&'a Value),
}

fn mismatch(d: &Datum<'_>, c: &Column) -> Error {
    let kind = match d {
        Datum::Null => "null",
        Datum::Bool(_) => "boolean",
        Datum::Int(_) => "integer",
        Datum::Float(_) => "double precision",
        Datum::Text(_) => "text",
        Datum::Bytes(_) => "bytea",
        Datum::Value(_) => "this",
    };
    let what = format!(
        "column \"{}\" is of type {} but the value is of type {kind}",
        c.name,
        c.ty().ty.typname()
    );
    Error::new(SqlState::DATATYPE_MISMATCH, what).column(&c.name)
}

fn out_of_range(c: &Column) -> Error {
    let what = format!("{} out of range", c.ty().ty.typname());
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, what).column(&c.name)
}

impl Datum<'_> {
    /// As a value of the widest type of its kind.
    pub fn any(&self) -> Value {
        match self {
            Datum::Null => Value::Null,
            Datum::Bool(b) => Value::Bool(*b),
            Datum::Int(x) => Value::Int8(*x),
            Datum::Float(x) => Value::Float8(*x),
            Datum::Text(s) => Value::text(s),
            Datum::Bytes(b) => Value::Bytea((*b).into()),
            Datum::Value(v) => (*v).clone(),
        }
    }

    /// The value of this column.
    #[inline]
    pub fn to_value(&self, c: &Column) -> Result<Value> {
        const INT8: Oid = Type::Int8.oid();
        const TEXT: Oid = Type::Text.oid();
        // What most columns are.
        match (self, c.type_oid) {
            (Datum::Int(x), INT8) => Ok(Value::Int8(*x)),
            (Datum::Text(s), TEXT) => Ok(Value::text(s)),
            _ => self.other_value(c),
        }
    }

    fn other_value(&self, c: &Column) -> Result<Value> {
        let ty = c.ty();
        let value = match (self, ty.ty) {
            (Datum::Null, _) => Value::Null,
            (Datum::Int(x), Type::Int8) => Value::Int8(*x),
            (Datum::Int(x), Type::Int4) => {
                Value::Int4(i32::try_from(*x).map_err(|_| out_of_range(c))?)
            }
            (Datum::Int(x), Type::Int2) => {
                Value::Int2(i16::try_from(*x).map_err(|_| out_of_range(c))?)
            }
            (Datum::Int(x), Type::Oid) => {
                Value::Oid(u32::try_from(*x).map_err(|_| out_of_range(c))?)
            }
            (Datum::Int(x), Type::Float8) => Value::Float8(*x as f64),
            (Datum::Bool(b), Type::Bool) => Value::Bool(*b),
            (Datum::Float(x), Type::Float8) => Value::Float8(*x),
            (Datum::Float(x), Type::Float4) => Value::Float4(*x as f32),
            (Datum::Text(s), Type::Text | Type::Name) => Value::text(s),
            (Datum::Text(s), Type::User(u)) if !u.is_composite() => match u.rank(s) {
                Some(rank) => Value::Enum(u, rank),
                None => {
                    let what = format!("invalid input value for enum {}: \"{s}\"", u.name);
                    return Err(
                        Error::new(SqlState::INVALID_TEXT_REPRESENTATION, what).column(&c.name)
                    );
                }
            },
            (Datum::Text(s), Type::Varchar | Type::Bpchar) => {
                let s = if ty.ty == Type::Bpchar {
                    s.trim_end_matches(' ')
                } else {
                    s
                };
                // PostgreSQL's modifier: four more than the length.
                let most = usize::try_from(ty.typmod - 4).unwrap_or(usize::MAX);
                if s.chars().count() > most {
                    let what = format!("value too long for type {}({most})", ty.ty.typname());
                    return Err(
                        Error::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, what).column(&c.name)
                    );
                }
                Value::text(s)
            }
            (Datum::Bytes(b), Type::Bytea) => Value::Bytea((*b).into()),
            (Datum::Value(v), ty) => return of_type(v, ty, c),
            _ => return Err(mismatch(self, c)),
        };
        Ok(value)
    }
}

/// The value as the column holds it, if it is of its type.
fn of_type(v: &Value, ty: Type, c: &Column) -> Result<Value> {
    let fits = match v {
        Value::Null => true,
        Value::Bool(_) => ty == Type::Bool,
        Value::Int2(x) => return Datum::Int(i64::from(*x)).to_value(c),
        Value::Int4(x) => return Datum::Int(i64::from(*x)).to_value(c),
        Value::Int8(x) => return Datum::Int(*x).to_value(c),
        Value::Float4(_) => ty == Type::Float4,
        Value::Float8(x) => return Datum::Float(*x).to_value(c),
        Value::Numeric(_) => ty == Type::Numeric,
        Value::Text(s) => return Datum::Text(s).to_value(c),
        Value::Char(_) => ty == Type::Char,
        Value::Bytea(_) => ty == Type::Bytea,
        Value::Uuid(_) => ty == Type::Uuid,
        Value::Date(_) => ty == Type::Date,
        Value::Time(_) => ty == Type::Time,
        Value::Timestamp(_) => ty == Type::Timestamp,
        Value::TimestampTz(_) => ty == Type::TimestampTz,
        Value::Interval(_) => ty == Type::Interval,
        Value::Json(_) => matches!(ty, Type::Json | Type::Jsonb),
        Value::Oid(_) => ty == Type::Oid,
        Value::Array(a) => ty.element() == Some(a.element),
        Value::Enum(of, _) => ty == Type::User(*of),
        Value::Packed(p) => ty == p.kind().ty(),
        Value::Row(r) => ty == Type::User(r.ty),
    };
    if !fits {
        return Err(mismatch(&Datum::Value(v), c));
    }
    base::modifier::fit(v.clone(), c.ty().typmod)
}

/// Something that can stand in a column.
pub trait ToDatum {
    fn datum(&self) -> Datum<'_>;
}

macro_rules! data {
    ($($t:ty => |$s:ident| $e:expr;)*) => { $(impl ToDatum for $t { fn datum(&self) -> Datum<'_> { let $s = self; $e } })* };
}

data! {
    bool => |s| Datum::Bool(*s);
    i16 => |s| Datum::Int(i64::from(*s));
    i32 => |s| Datum::Int(i64::from(*s));
    i64 => |s| Datum::Int(*s);
    u32 => |s| Datum::Int(i64::from(*s));
    f64 => |s| Datum::Float(*s);
    str => |s| Datum::Text(s);
    String => |s| Datum::Text(s);
    [u8] => |s| Datum::Bytes(s);
    Vec<u8> => |s| Datum::Bytes(s);
    Value => |s| Datum::Value(s);
}

impl ToDatum for Datum<'_> {
    fn datum(&self) -> Datum<'_> {
        *self
    }
}

impl<T: ToDatum + ?Sized> ToDatum for &T {
    fn datum(&self) -> Datum<'_> {
        (**self).datum()
    }
}

impl<T: ToDatum> ToDatum for Option<T> {
    fn datum(&self) -> Datum<'_> {
        self.as_ref().map_or(Datum::Null, ToDatum::datum)
    }
}

/// A key, or the first columns of one: a value, a tuple, a slice. `()` is the empty prefix. The parameters of a statement, too.
pub trait ToKey {
    /// Calls `f` with each column's value in order.
    fn each(&self, f: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()>;
}

impl<T: ToKey + ?Sized> ToKey for &T {
    fn each(&self, f: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()> {
        (**self).each(f)
    }
}

/// All columns of a row in the table's order.
pub trait IntoRow {
    /// Calls `f` with each column's value in order.
    fn each(&self, f: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()>;
}

impl<T: IntoRow + ?Sized> IntoRow for &T {
    fn each(&self, f: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()> {
        (**self).each(f)
    }
}

/// A row to write: all columns in order ([`IntoRow`]) or some by name ([`Named`]; the others NULL, or as they were).
pub trait WriteRow {
    /// Puts the values into `row`, which holds NULLs or the old row.
    fn write(&self, table: &TableHandle, row: &mut [Value]) -> Result<()>;

    /// Whether it has a value for this column; an inserted row has the DEFAULT in the others.
    fn names(&self, _column: &str) -> bool {
        true
    }
}

/// Columns that are not dropped, with their places.
fn live(table: &TableHandle) -> impl Iterator<Item = (usize, &Column)> {
    let all = table.table.def.columns.iter().enumerate();
    all.filter(|(_, c)| !c.dropped)
}

impl<R: IntoRow + ?Sized> WriteRow for R {
    fn write(&self, table: &TableHandle, row: &mut [Value]) -> Result<()> {
        let mut columns = live(table);
        self.each(&mut |d| {
            let (place, c) = columns.next().ok_or_else(|| wrong_count(table))?;
            row[place] = d.to_value(c)?;
            Ok(())
        })?;
        match columns.next() {
            None => Ok(()),
            Some(_) => Err(wrong_count(table)),
        }
    }
}

fn wrong_count(table: &TableHandle) -> Error {
    let what = format!(
        "table \"{}\" has {} columns, the row another number",
        table.name(),
        live(table).count()
    );
    Error::new(SqlState::SYNTAX_ERROR, what)
}

/// A row with columns by name; made by [`row!`](crate::row).
#[derive(Clone, Debug)]
pub struct Named<const N: usize>(pub [(&'static str, Value); N]);

impl<const N: usize> WriteRow for Named<N> {
    fn write(&self, table: &TableHandle, row: &mut [Value]) -> Result<()> {
        for (name, v) in &self.0 {
            let place = column(table, name)?;
            row[place] = v.datum().to_value(&table.table.def.columns[place])?;
        }
        Ok(())
    }

    fn names(&self, column: &str) -> bool {
        self.0.iter().any(|(n, _)| *n == column)
    }
}

/// A row with columns by name: `row! { id: 1, name: "x" }`.
#[macro_export]
macro_rules! row {
    ($($name:ident : $value:expr),* $(,)?) => {
        $crate::Named([$((stringify!($name), $crate::ToDatum::datum(&$value).any())),*])
    };
}

pub(super) fn column(table: &TableHandle, name: &str) -> Result<usize> {
    let place = table.table.column(name).ok_or_else(|| {
        let what = format!(
            "column \"{name}\" of relation \"{}\" does not exist",
            table.name()
        );
        Error::new(SqlState::UNDEFINED_COLUMN, what)
    })?;
    Ok(place as usize)
}

/// A row, read in place: of a table, or of the result of a query.
#[derive(Clone, Copy)]
pub struct Row<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Stored {
        table: &'a TableHandle,
        row: RowRef<'a>,
    },
    #[cfg(feature = "sql")]
    Result {
        columns: &'a [sql::session::Column],
        values: &'a [Value],
    },
}

impl<'a> Row<'a> {
    pub(super) fn stored(table: &'a TableHandle, row: RowRef<'a>) -> Row<'a> {
        Row(Source::Stored { table, row })
    }

    #[cfg(feature = "sql")]
    pub(super) fn of_result(columns: &'a [sql::session::Column], values: &'a [Value]) -> Row<'a> {
        Row(Source::Result { columns, values })
    }

    /// The column of this name, the first of a result. 42703 when there is none, 42804 when it holds another type, 22004 for a NULL
    /// that `T` cannot be.
    pub fn get<T: FromColumn>(&self, name: &str) -> Result<T> {
        self.at(match &self.0 {
            Source::Stored { table, .. } => column(table, name)?,
            #[cfg(feature = "sql")]
            Source::Result { columns, .. } => {
                let place = columns.iter().position(|c| c.name == name);
                place.ok_or_else(|| {
                    let what = format!("column \"{name}\" is not in the result");
                    Error::new(SqlState::UNDEFINED_COLUMN, what)
                })?
            }
        })
    }

    /// The column at this place, dropped ones of a table counted.
    pub fn at<T: FromColumn>(&self, place: usize) -> Result<T> {
        let v = match &self.0 {
            Source::Stored { row, .. } => row.get(place),
            #[cfg(feature = "sql")]
            Source::Result { values, .. } => values[place].clone(),
        };
        let null = v.is_null();
        T::from_value(v).ok_or_else(|| self.not_that(place, null))
    }

    #[cold]
    fn not_that(&self, place: usize, null: bool) -> Error {
        let (name, ty) = match &self.0 {
            Source::Stored { table, .. } => {
                let c = &table.table.def.columns[place];
                (c.name.as_str(), c.ty().ty)
            }
            #[cfg(feature = "sql")]
            Source::Result { columns, .. } => (columns[place].name.as_str(), columns[place].ty.ty),
        };
        let (code, what) = match null {
            true => (SqlState::NULL_VALUE_NOT_ALLOWED, "is null".to_owned()),
            false => (
                SqlState::DATATYPE_MISMATCH,
                format!("is of type {}", ty.typname()),
            ),
        };
        Error::new(code, format!("column \"{name}\" {what}")).column(name)
    }

    /// The bytes of a fixed-width or text column of a table, without a copy; none for NULL, and none in a result.
    #[inline]
    pub fn bytes(&self, place: usize) -> Option<&'a [u8]> {
        match &self.0 {
            Source::Stored { row, .. } if !row.is_missing(place) && !row.is_null(place) => {
                Some(row.raw(place))
            }
            _ => None,
        }
    }

    /// The place of the next column from `from` on that is there.
    fn next(&self, from: usize) -> Option<usize> {
        match &self.0 {
            Source::Stored { table, .. } => {
                let columns = table.table.def.columns.get(from..)?;
                columns.iter().position(|c| !c.dropped).map(|i| from + i)
            }
            #[cfg(feature = "sql")]
            Source::Result { values, .. } => (from < values.len()).then_some(from),
        }
    }

    #[cold]
    fn wrong_count(&self) -> Error {
        match &self.0 {
            Source::Stored { table, .. } => wrong_count(table),
            #[cfg(feature = "sql")]
            Source::Result { columns, .. } => {
                let what = format!(
                    "the result has {} columns, the row another number",
                    columns.len()
                );
                Error::new(SqlState::SYNTAX_ERROR, what)
            }
        }
    }
}

/// Something that a column can be read as.
pub trait FromColumn: Sized {
    /// None when the value is of another kind.
    fn from_value(v: Value) -> Option<Self>;
}

macro_rules! columns {
    ($($t:ty => $p:pat => $e:expr;)*) => { $(impl FromColumn for $t {
        fn from_value(v: Value) -> Option<Self> { match v { $p => Some($e), _ => None } }
    })* };
}

columns! {
    bool => Value::Bool(b) => b;
    i16 => Value::Int2(x) => x;
    f32 => Value::Float4(x) => x;
    f64 => Value::Float8(x) => x;
    String => Value::Text(s) => s.into_string();
    Vec<u8> => Value::Bytea(b) => b.into_vec();
}

impl FromColumn for Value {
    fn from_value(v: Value) -> Option<Self> {
        Some(v)
    }
}

impl FromColumn for i32 {
    fn from_value(v: Value) -> Option<Self> {
        v.as_i64().and_then(|x| x.try_into().ok())
    }
}

impl FromColumn for i64 {
    fn from_value(v: Value) -> Option<Self> {
        v.as_i64()
    }
}

impl<T: FromColumn> FromColumn for Option<T> {
    fn from_value(v: Value) -> Option<Self> {
        if v.is_null() {
            return Some(None);
        }
        T::from_value(v).map(Some)
    }
}

/// A row read into Rust values: a tuple of the columns in order, all of them, or a type of the caller's.
pub trait FromRow: Sized {
    fn from_row(row: Row<'_>) -> Result<Self>;
}

impl FromRow for Vec<Value> {
    fn from_row(row: Row<'_>) -> Result<Self> {
        let mut values = Vec::new();
        let mut from = 0;
        while let Some(i) = row.next(from) {
            values.push(row.at(i)?);
            from = i + 1;
        }
        Ok(values)
    }
}

impl FromRow for () {
    fn from_row(_: Row<'_>) -> Result<Self> {
        Ok(())
    }
}

macro_rules! scalars {
    ($($t:ty)*) => { $(impl ToKey for $t {
        fn each(&self, f: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()> { f(self.datum()) }
    })* };
}

scalars! { bool i16 i32 i64 f64 String str [u8] Value }

impl ToKey for () {
    fn each(&self, _: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()> {
        Ok(())
    }
}

macro_rules! lists {
    ($($t:ty)*) => { $(
        impl ToKey for $t {
            fn each(&self, f: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()> { self.iter().try_for_each(|d| f(d.datum())) }
        }
        impl IntoRow for $t {
            fn each(&self, f: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()> { self.iter().try_for_each(|d| f(d.datum())) }
        }
    )* };
}

lists! { [Datum<'_>] [Value] Vec<Value> }

macro_rules! tuples {
    ($(($($T:ident $i:tt)+))*) => { $(
        impl<$($T: ToDatum),+> ToKey for ($($T,)+) {
            fn each(&self, f: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()> { $(f(self.$i.datum())?;)+ Ok(()) }
        }
        impl<$($T: ToDatum),+> IntoRow for ($($T,)+) {
            fn each(&self, f: &mut dyn FnMut(Datum<'_>) -> Result<()>) -> Result<()> { $(f(self.$i.datum())?;)+ Ok(()) }
        }
        impl<$($T: FromColumn),+> FromRow for ($($T,)+) {
            fn from_row(row: Row<'_>) -> Result<Self> {
                let mut from = 0;
                let mut next = || {
                    let place = row.next(from).ok_or_else(|| row.wrong_count())?;
                    from = place + 1;
                    Ok::<usize, Error>(place)
                };
                let r = ($(row.at::<$T>(next()?)?,)+);
                match row.next(from) {
                    None => Ok(r),
                    Some(_) => Err(row.wrong_count()),
                }
            }
        }
    )* };
}

tuples! {
    (A 0)
    (A 0 B 1)
    (A 0 B 1 C 2)
    (A 0 B 1 C 2 D 3)
    (A 0 B 1 C 2 D 3 E 4)
    (A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11)
}
