//! The schema as data: namespaces, tables with their indexes and constraints, sequences, views, roles.
//!
//! A [`Schema`] is one immutable version, shared by `Arc`; it is valid from the position of the commit that made it. A DDL
//! transaction collects [`Change`]s; applying them to the newest schema gives the next. Changes go through the log as JSON
//! (DDL is rare and should be readable in a hex dump); the derived parts (names, layouts, who references whom) are rebuilt.
//!
//! Expressions (defaults, checks, view queries) are kept as SQL text: who evaluates them compiles them once per version.
//! An index over an expression, and one with a condition, is an index over a *hidden column*: generated, stored in the rows, and marked as dropped,
//! so that no statement sees it. Writers compute it as they compute generated columns; recovery and replicas find it in the rows.
//!
//! Left out on purpose: inheritance, partitions, triggers.

use crate::id::{ColumnIdx, FIRST_USER_OID, Oid, RelId};
use crate::key::KeyColumn;
pub use crate::membership::Role;
use crate::membership::{Membership, PREDEFINED};
use crate::pmap::PMap;
use crate::row::RowLayout;
use crate::stored_settings::{For, StoredSettings};
use crate::types::{ColumnType, Type};
use crate::user_type::{self, Label};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Oids of the namespaces that always exist, and of the first role.
pub const PG_CATALOG: Oid = 11;
pub const PUBLIC: Oid = 2200;
pub const INFORMATION_SCHEMA: Oid = 13000;

/// The namespace of the hidden tables of split columns. No name leads to it.
pub const CANON_SPLIT: Oid = 12;
pub const BOOTSTRAP_ROLE: Oid = 10;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Namespace {
    pub id: Oid,
    pub name: String,
    pub owner: Oid,
    #[serde(default)]
    pub acl: Acl,
}

/// Number of the settings that a database was made with.
const MADE_SETTINGS: Oid = FIRST_USER_OID - 1;

/// Privileges on a relation, as bits.
pub mod privilege {
    pub const SELECT: u32 = 1;
    pub const INSERT: u32 = 2;
    pub const UPDATE: u32 = 4;
    pub const DELETE: u32 = 8;
    pub const TRUNCATE: u32 = 16;
    pub const REFERENCES: u32 = 32;
    pub const TRIGGER: u32 = 64;
    pub const USAGE: u32 = 128;
    /// On schemas only.
    pub const CREATE: u32 = 256;
    pub const ALL: u32 = 127;
    /// Those that a single column may have.
    pub const OF_COLUMNS: u32 = SELECT | INSERT | UPDATE | REFERENCES;
    /// On functions only.
    pub const EXECUTE: u32 = 512;
}

/// Who may do what: (role, bits); role 0 is PUBLIC.
pub type Acl = Vec<(Oid, u32)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    Always,
    ByDefault,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    /// Oid of the type and its modifier.
    pub type_oid: Oid,
    pub typmod: i32,
    pub not_null: bool,
    /// SQL text of the DEFAULT expression.
    pub default: Option<String>,
    pub identity: Option<Identity>,
    /// Dropped columns keep their place, because rows do.
    pub dropped: bool,
    /// What rows written before the column existed hold, as `row::encode_value` writes it; none: NULL.
    pub missing: Option<Vec<u8>>,
    /// Deltas of the column are merged, see [`crate::split`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<crate::split::Split>,
    /// GENERATED ALWAYS AS (…) STORED: `default` is the expression, over other columns of the row.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub generated: bool,
    /// The domain that the values obey; `type_oid` is the domain's base type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Oid>,
    /// Rights on this column alone, beside those on the relation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acl: Acl,
    /// The type of this number where a user made it; [`Schema::apply`] sets it.
    #[serde(skip)]
    user: Option<Type>,
    /// The definition of `domain`; [`Schema::apply`] sets it.
    #[serde(skip)]
    rules: Option<Arc<UserTypeOf>>,
}

impl Column {
    /// A column that may be NULL and has no default.
    pub fn new(name: impl Into<String>, ty: ColumnType) -> Column {
        let mut c = Column {
            name: name.into(),
            type_oid: 0,
            typmod: -1,
            not_null: false,
            default: None,
            identity: None,
            dropped: false,
            missing: None,
            split: None,
            generated: false,
            domain: None,
            acl: vec![],
            user: None,
            rules: None,
        };
        c.set_type(ty);
        c
    }

    /// A column that an index computes: no statement sees it, and rows have it. `default` is its expression.
    pub fn is_hidden(&self) -> bool {
        self.dropped && self.generated
    }

    /// The column's type.
    #[inline]
    pub fn ty(&self) -> ColumnType {
        let ty = self.user.or_else(|| Type::from_oid(self.type_oid));
        ColumnType {
            ty: ty.expect("the schema holds known types"),
            typmod: self.typmod,
        }
    }

    /// The definition of the column's domain, in a column of a schema.
    pub fn rules(&self) -> Option<(&TypeDef, &Domain)> {
        let def = &self.rules.as_ref()?.def;
        match &def.kind {
            TypeKind::Domain(d) => Some((def, d)),
            TypeKind::Enum(_) | TypeKind::Composite(_) => None,
        }
    }

    /// Whether two columns keep the same version of a domain's rules, or none.
    pub fn same_rules(&self, other: &Column) -> bool {
        match (&self.rules, &other.rules) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }

    /// Gives the column this type.
    pub fn set_type(&mut self, ty: ColumnType) {
        (self.type_oid, self.typmod) = (ty.ty.oid(), ty.typmod);
        self.user = matches!(ty.ty, Type::User(_) | Type::UserArray(_)).then_some(ty.ty);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexColumn {
    pub column: ColumnIdx,
    pub desc: bool,
    pub nulls_first: bool,
}

/// A secondary index, or the primary key that rows are kept under (whose entries are the rows themselves).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Index {
    pub id: Oid,
    pub name: String,
    pub columns: Vec<IndexColumn>,
    pub unique: bool,
    pub primary: bool,
    /// Made by a PRIMARY KEY or UNIQUE constraint of the same name, not by CREATE INDEX.
    pub constraint: bool,
    /// Oid of that constraint, 0 for none.
    pub constraint_oid: Oid,
    /// UNIQUE NULLS NOT DISTINCT.
    pub nulls_not_distinct: bool,
    /// A partial index: SQL text of its condition. The first column is then a hidden one, TRUE in the rows that the condition holds for and
    /// NULL in the others, so that a unique index sees no conflict among those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
    /// Columns of INCLUDE. They are kept for the catalogs alone: an index leads to the row, and no scan reads its entries only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<ColumnIdx>,
    /// When its constraint is checked. Until then several rows may have one key, unless it is `Never`.
    #[serde(default, skip_serializing_if = "Deferral::is_never")]
    pub deferral: Deferral,
    /// It is of a PRIMARY KEY that is DEFERRABLE. No rows are kept under it, since several may have one key: `primary` is false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub late_primary: bool,
}

impl Index {
    /// Whether two rows never have one key, not even within a transaction.
    #[inline]
    pub fn is_immediate(&self) -> bool {
        self.unique && self.deferral.is_never()
    }

    /// Whether it is of a PRIMARY KEY.
    pub fn is_primary_key(&self) -> bool {
        self.primary || self.late_primary
    }

    /// The key as CREATE INDEX wrote it: without the hidden column of a condition.
    pub fn written(&self) -> &[IndexColumn] {
        &self.columns[usize::from(self.predicate.is_some())..]
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    pub id: Oid,
    pub name: String,
    /// SQL text of the condition.
    pub expr: String,
    /// Rows that were there when it was made need not keep it (NOT VALID).
    #[serde(default, skip_serializing_if = "is_false")]
    pub not_valid: bool,
}

fn is_false(b: &bool) -> bool {
    !*b
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FkAction {
    NoAction,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

/// When a foreign key or a unique key is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deferral {
    /// At the end of the statement, always.
    #[default]
    Never,
    /// DEFERRABLE INITIALLY IMMEDIATE: SET CONSTRAINTS may put it off to the commit.
    Immediate,
    /// DEFERRABLE INITIALLY DEFERRED.
    Deferred,
}

impl Deferral {
    pub fn is_never(&self) -> bool {
        *self == Deferral::Never
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForeignKey {
    pub id: Oid,
    pub name: String,
    pub columns: Vec<ColumnIdx>,
    pub ref_table: Oid,
    /// The unique index (or primary key) of the referenced table that is probed.
    pub ref_index: Oid,
    pub ref_columns: Vec<ColumnIdx>,
    pub on_delete: FkAction,
    pub on_update: FkAction,
    #[serde(default, skip_serializing_if = "Deferral::is_never")]
    pub deferral: Deferral,
    /// Rows that were there when it was made need not keep it (NOT VALID).
    #[serde(default, skip_serializing_if = "is_false")]
    pub not_valid: bool,
}

/// Kinds of objects that have default privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DefaultFor {
    Tables,
    Sequences,
    Functions,
    Types,
    Schemas,
}

/// What objects of a kind are born with when a role makes them (ALTER DEFAULT PRIVILEGES).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DefaultAcl {
    pub id: Oid,
    pub role: Oid,
    /// The schema they are made in; 0: any. One for any schema stands for the built-in privileges; one for a schema adds to that.
    pub namespace: Oid,
    pub of: DefaultFor,
    pub acl: Acl,
}

/// An extension that CREATE EXTENSION has made. Its functions and types are built in; without it no name means them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Extension {
    pub id: Oid,
    pub name: String,
    pub version: String,
    pub namespace: Oid,
    pub owner: Oid,
}

/// A table. `Deref`-free on purpose: [`Table`] adds the derived parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableDef {
    pub id: Oid,
    /// Changes with TRUNCATE and with rewrites.
    pub storage: RelId,
    pub namespace: Oid,
    pub name: String,
    pub owner: Oid,
    /// Version that rows written now carry; grows with each change of the columns.
    pub row_version: u16,
    pub columns: Vec<Column>,
    /// Includes the primary key. Without one, rows are keyed by a hidden 8-byte row id.
    pub indexes: Vec<Index>,
    pub checks: Vec<Check>,
    pub foreign_keys: Vec<ForeignKey>,
    pub acl: Acl,
    /// Set by a change that makes new storage out of old rows (ADD PRIMARY KEY): the storage that they are in.
    pub rewrite_of: Option<RelId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SequenceDef {
    pub id: Oid,
    pub namespace: Oid,
    pub name: String,
    pub owner: Oid,
    pub type_oid: Oid,
    pub start: i64,
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    pub cycle: bool,
    pub cache: i64,
    /// The column that SERIAL or IDENTITY made it for; it is dropped with the column.
    pub owned_by: Option<(Oid, ColumnIdx)>,
    /// Another number after each RESTART, never one that was used before, so that the running state starts anew.
    pub generation: u64,
    /// First value of this generation (RESTART WITH); none: `start`.
    #[serde(default)]
    pub restart: Option<i64>,
    pub acl: Acl,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ViewDef {
    pub id: Oid,
    pub namespace: Oid,
    pub name: String,
    pub owner: Oid,
    pub columns: Vec<Column>,
    /// The SELECT, as SQL text with names as written.
    pub query: String,
    /// The search path under which the query's names mean what they meant when the view was made.
    #[serde(default)]
    pub search_path: Vec<String>,
    /// Relations it reads, for DROP … RESTRICT and CASCADE.
    pub depends_on: Vec<Oid>,
    pub acl: Acl,
    /// What it reads is read with the rights of the reader, not of the owner.
    #[serde(default)]
    pub security_invoker: bool,
    /// WITH CHECK OPTION: a row that is written through the view must be one of its rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_option: Option<CheckOption>,
}

/// WITH CHECK OPTION: the views that check a new row by their conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckOption {
    /// The view's own.
    Local,
    /// The view's own, and those of the views below.
    Cascaded,
}

/// A type that a user made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TypeDef {
    pub id: Oid,
    /// Number of the type of arrays over it.
    pub array: Oid,
    pub namespace: Oid,
    pub name: String,
    pub owner: Oid,
    /// None: all roles may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acl: Option<Acl>,
    pub kind: TypeKind,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TypeKind {
    /// Labels in order of rank.
    Enum(Vec<Label>),
    Domain(Domain),
    Composite(Composite),
}

/// A type made of others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Composite {
    /// Number of its row in `pg_class`.
    pub relation: Oid,
    pub attributes: Vec<AttributeDef>,
}

/// A part of a composite type.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttributeDef {
    pub name: String,
    pub type_oid: Oid,
    pub typmod: i32,
    /// It keeps its place, because values do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
}

/// A type with rules for its values.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Domain {
    /// Oid and modifier of the type that it is made of.
    pub base: Oid,
    pub typmod: i32,
    pub not_null: bool,
    /// SQL text of the DEFAULT expression.
    pub default: Option<String>,
    /// Conditions over VALUE.
    pub checks: Vec<Check>,
}

impl TypeDef {
    pub fn is_domain(&self) -> bool {
        matches!(self.kind, TypeKind::Domain(_))
    }

    /// The highest number in it.
    fn last_oid(&self) -> Oid {
        match &self.kind {
            TypeKind::Enum(labels) => labels.iter().map(|l| l.id).fold(self.array, Oid::max),
            TypeKind::Domain(d) => d.checks.iter().map(|c| c.id).fold(self.array, Oid::max),
            TypeKind::Composite(c) => c.relation.max(self.array),
        }
    }
}

/// A catalogued object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Object {
    Namespace(Namespace),
    Role(Role),
    Table(TableDef),
    Sequence(SequenceDef),
    View(ViewDef),
    Type(TypeDef),
    /// COMMENT ON: (object, column or 0) and its text live as an object of their own.
    Comment {
        id: Oid,
        on: Oid,
        column: i32,
        text: String,
    },
    Settings(StoredSettings),
    Member(Membership),
    DefaultAcl(DefaultAcl),
    Extension(Extension),
}

impl Object {
    /// The object's number.
    pub fn id(&self) -> Oid {
        match self {
            Object::Namespace(o) => o.id,
            Object::Role(o) => o.id,
            Object::Table(o) => o.id,
            Object::Sequence(o) => o.id,
            Object::View(o) => o.id,
            Object::Type(o) => o.id,
            Object::Comment { id, .. } => *id,
            Object::Settings(s) => s.id,
            Object::Member(m) => m.id,
            Object::DefaultAcl(d) => d.id,
            Object::Extension(e) => e.id,
        }
    }
}

/// One step from a schema to the next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Create, or replace the object of this number.
    Put(Object),
    Drop(Oid),
}

/// A table with what is derived from its definition.
#[derive(Debug)]
pub struct Table {
    pub def: TableDef,
    pub layout: RowLayout,
    /// Key columns of each index, in the order of `def.indexes`; secondary keys end with the primary key's bytes.
    pub keys: Vec<Vec<KeyColumn>>,
    /// Foreign keys of other tables (and of this one) that reference this table: (table, place in its list).
    pub referenced_by: Vec<(Oid, usize)>,
}

impl Table {
    fn new(def: TableDef) -> Table {
        let missing = |c: &Column| match &c.missing {
            Some(bytes) => crate::row::decode_value(c.ty().ty, bytes)
                .expect("the schema holds readable values"),
            None => crate::value::Value::Null,
        };
        let layout = RowLayout::new(def.columns.iter().map(|c| c.ty().ty))
            .with_missing(def.columns.iter().map(missing).collect());
        let keys = def.indexes.iter().map(|i| key_columns(&def, i)).collect();
        Table {
            def,
            layout,
            keys,
            referenced_by: Vec::new(),
        }
    }

    /// The primary key's place in `def.indexes`; none: hidden row ids.
    pub fn primary(&self) -> Option<usize> {
        self.def.indexes.iter().position(|i| i.primary)
    }

    /// The place of the column with this name, dropped ones not counted.
    pub fn column(&self, name: &str) -> Option<ColumnIdx> {
        self.def
            .columns
            .iter()
            .position(|c| !c.dropped && c.name == name)
            .map(|i| i as ColumnIdx)
    }
}

fn key_columns(def: &TableDef, index: &Index) -> Vec<KeyColumn> {
    let column = |c: &IndexColumn| KeyColumn {
        ty: def.columns[c.column as usize].ty().ty,
        desc: c.desc,
        nulls_first: c.nulls_first,
        nullable: !index.primary,
    };
    index.columns.iter().map(column).collect()
}

/// What a relation name means.
#[derive(Clone, Debug)]
pub enum Relation {
    Table(Arc<Table>),
    Sequence(Arc<SequenceDef>),
    View(Arc<ViewDef>),
}

impl Relation {
    /// The relation's number.
    pub fn id(&self) -> Oid {
        match self {
            Relation::Table(t) => t.def.id,
            Relation::Sequence(s) => s.id,
            Relation::View(v) => v.id,
        }
    }

    /// The columns of a table or a view, dropped ones with them. Those of a sequence have no rights of their own.
    pub fn columns(&self) -> &[Column] {
        match self {
            Relation::Table(t) => &t.def.columns,
            Relation::View(v) => &v.columns,
            Relation::Sequence(_) => &[],
        }
    }

    /// The relation's name.
    pub fn name(&self) -> &str {
        match self {
            Relation::Table(t) => &t.def.name,
            Relation::Sequence(s) => &s.name,
            Relation::View(v) => &v.name,
        }
    }
}

/// One version of the whole schema.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Grows by one with every change.
    pub version: u64,
    /// The next number to give to an object; shared by all DDL, never reused.
    pub next_oid: Oid,
    pub(crate) namespaces: PMap<Oid, Arc<Namespace>>,
    pub(crate) roles: PMap<Oid, Arc<Role>>,
    pub(crate) relations: PMap<Oid, Relation>,
    names: PMap<(Oid, String), Oid>,
    /// How many constraints of a namespace have a name.
    constraints: PMap<(Oid, String), u32>,
    comments: PMap<Oid, (Oid, i32, Arc<str>)>,
    settings: PMap<Oid, Arc<StoredSettings>>,
    members: PMap<Oid, Arc<Membership>>,
    /// By member: the roles of its stored memberships.
    pub(crate) roles_given: PMap<Oid, Arc<[Oid]>>,
    default_acls: PMap<Oid, Arc<DefaultAcl>>,
    pub(crate) extensions: PMap<Oid, Arc<Extension>>,
    pub(crate) types: PMap<Oid, Arc<UserTypeOf>>,
    /// By schema and name.
    type_names: PMap<(Oid, String), Oid>,
    /// The namespace of temporary objects, in the schema as one session sees it; 0: there are none.
    temporary: Oid,
}

/// A user's type: its definition and what it is as a type of values; a domain is what it is made of.
#[derive(Debug)]
pub struct UserTypeOf {
    pub def: TypeDef,
    pub ty: Type,
}

/// How the names of namespaces of temporary objects begin.
pub const TEMPORARY: &str = "pg_temp_";

impl Schema {
    /// The schema of a new database: the namespaces, and the superuser `owner` without a password. Its sessions begin with these settings.
    pub fn made(owner: &str, settings: &[(&str, &str)]) -> Schema {
        let mut s = Schema::bootstrap(owner);
        let own = |(n, v): &(&str, &str)| ((*n).to_owned(), (*v).to_owned());
        let made = StoredSettings {
            id: MADE_SETTINGS,
            of: For::Made,
            values: settings.iter().map(own).collect(),
        };
        s = s.apply(&[Change::Put(Object::Settings(made))]);
        s.version = 1;
        s
    }

    /// The same without settings.
    pub fn bootstrap(owner: &str) -> Schema {
        let mut s = Schema {
            next_oid: FIRST_USER_OID,
            ..Schema::default()
        };
        let ns = [
            (PG_CATALOG, "pg_catalog"),
            (PUBLIC, "public"),
            (INFORMATION_SCHEMA, "information_schema"),
        ];
        let mut changes: Vec<Change> = ns
            .iter()
            .map(|(id, n)| {
                Change::Put(Object::Namespace(Namespace {
                    id: *id,
                    name: (*n).into(),
                    owner: BOOTSTRAP_ROLE,
                    acl: vec![],
                }))
            })
            .collect();
        changes.push(Change::Put(Object::Role(Role {
            superuser: true,
            login: true,
            createdb: true,
            createrole: true,
            replication: true,
            ..Role::new(BOOTSTRAP_ROLE, owner)
        })));
        s = s.apply(&changes);
        s.version = 1;
        s
    }

    /// The schema after these changes, one version later. Changes are checked by who makes them. The work grows with the changes, and not
    /// with the schema: a copy shares all that they leave alone.
    pub fn apply(&self, changes: &[Change]) -> Schema {
        let mut s = self.clone();
        s.version += 1;
        // Also when the system's own objects are read back from a dump.
        s.next_oid = s.next_oid.max(FIRST_USER_OID);
        let touched: HashSet<Oid> = changes
            .iter()
            .filter_map(|c| match c {
                Change::Put(Object::Table(t)) => Some(t.id),
                Change::Put(_) => None,
                Change::Drop(id) => Some(*id),
            })
            .collect();
        s.apply_types(changes);
        let is_type = |c: &&Change| matches!(c, Change::Put(Object::Type(_)));
        for c in changes.iter().filter(|c| !is_type(c)) {
            match c {
                Change::Put(o) => {
                    s.next_oid = s.next_oid.max(o.id() + 1);
                    s.put(o.clone());
                }
                Change::Drop(id) => s.remove(*id),
            }
        }
        s.link(self, &touched);
        s
    }

    /// Types come first: tables that have columns of them may have lower numbers. So may composite types that are made of them.
    fn apply_types(&mut self, changes: &[Change]) {
        let mut waiting: Vec<&TypeDef> = changes
            .iter()
            .filter_map(|c| match c {
                Change::Put(Object::Type(t)) => Some(t),
                _ => None,
            })
            .collect();
        while !waiting.is_empty() {
            let before = waiting.len();
            waiting.retain(|t| {
                let known = self.has_parts(t);
                if known {
                    self.next_oid = self.next_oid.max(t.id + 1);
                    self.put(Object::Type((*t).clone()));
                }
                !known
            });
            assert!(
                waiting.len() < before,
                "a type is made of types that are there"
            );
        }
    }

    fn has_parts(&self, t: &TypeDef) -> bool {
        match &t.kind {
            TypeKind::Composite(c) => {
                let mut live = c.attributes.iter().filter(|a| !a.dropped);
                live.all(|a| self.type_numbered(a.type_oid).is_some())
            }
            TypeKind::Domain(d) => self.type_numbered(d.base).is_some(),
            TypeKind::Enum(_) => true,
        }
    }

    /// The attributes of a composite type, with their types as they are now.
    fn attributes(&self, c: &Composite) -> Vec<user_type::Attribute> {
        let of = |a: &AttributeDef| {
            let ty = match a.dropped {
                true => Type::Bytea,
                false => self.type_numbered(a.type_oid).expect("has_parts was asked"),
            };
            user_type::Attribute {
                name: a.name.clone(),
                ty: ColumnType {
                    ty,
                    typmod: a.typmod,
                },
                dropped: a.dropped,
            }
        };
        c.attributes.iter().map(of).collect()
    }

    /// Composite types with an attribute of this type, or of arrays over it.
    pub fn composites_of(&self, id: Oid) -> impl Iterator<Item = (&TypeDef, &Composite)> {
        let array = self.types.get(&id).map_or(0, |t| t.def.array);
        self.types.values().filter_map(move |t| match &t.def.kind {
            TypeKind::Composite(c) => {
                let mut live = c.attributes.iter().filter(|a| !a.dropped);
                let uses = live.any(|a| a.type_oid == id || a.type_oid == array && array != 0);
                uses.then_some((&t.def, c))
            }
            _ => None,
        })
    }

    fn put_type(&mut self, def: TypeDef) {
        let id = def.id;
        self.next_oid = self.next_oid.max(def.last_oid() + 1);
        self.type_names
            .insert((def.namespace, def.name.clone()), id);
        self.set_type(def);
        self.renew_made_of(id);
        // Relations made with an older version of it.
        let users: Vec<Relation> = self.relations_of_type(id).cloned().collect();
        for r in users {
            match r {
                Relation::Table(t) => {
                    let mut new = Table::new(self.resolved(t.def.clone()));
                    new.referenced_by.clone_from(&t.referenced_by);
                    let new = Relation::Table(Arc::new(new));
                    self.relations.insert(t.def.id, new);
                }
                Relation::View(v) => {
                    let mut new = (*v).clone();
                    self.resolve(&mut new.columns);
                    self.relations.insert(v.id, Relation::View(Arc::new(new)));
                }
                Relation::Sequence(_) => {}
            }
        }
    }

    /// Makes the composite types anew that are made of this type, each once and after its parts; then the domains over all of them.
    fn renew_made_of(&mut self, id: Oid) {
        let all = self.made_of(id);
        let (mut waiting, mut domains) = (vec![], vec![]);
        for t in self.types.values() {
            match &t.def.kind {
                TypeKind::Composite(_) if t.def.id != id && all.contains(&t.def.id) => {
                    waiting.push(t.def.clone());
                }
                TypeKind::Domain(d) if all.contains(&d.base) => domains.push(t.def.clone()),
                _ => {}
            }
        }
        while !waiting.is_empty() {
            let left: HashSet<Oid> = waiting.iter().flat_map(|t| [t.id, t.array]).collect();
            let needs = |t: &TypeDef| match &t.kind {
                TypeKind::Composite(c) => {
                    let mut live = c.attributes.iter().filter(|a| !a.dropped);
                    live.any(|a| left.contains(&a.type_oid))
                }
                _ => false,
            };
            let (rest, ready): (Vec<_>, Vec<_>) = waiting.into_iter().partition(needs);
            assert!(!ready.is_empty(), "no composite type is a part of itself");
            ready.into_iter().for_each(|t| self.set_type(t));
            waiting = rest;
        }
        domains.into_iter().for_each(|t| self.set_type(t));
    }

    /// The type as its parts are now. Its name stays as it is: another type may have taken it meanwhile.
    fn set_type(&mut self, def: TypeDef) {
        let ty = match &def.kind {
            TypeKind::Enum(labels) => {
                Type::User(user_type::intern(def.id, def.array, &def.name, labels))
            }
            TypeKind::Domain(d) => self
                .type_numbered(d.base)
                .expect("a domain's base is in the schema"),
            TypeKind::Composite(c) => {
                let attributes = self.attributes(c);
                let made = user_type::intern_composite(def.id, def.array, &def.name, &attributes);
                Type::User(made)
            }
        };
        self.types.insert(def.id, Arc::new(UserTypeOf { def, ty }));
    }

    /// This type and the composite types that are made of it, with the types of arrays over them.
    fn made_of(&self, id: Oid) -> HashSet<Oid> {
        let mut found = HashSet::new();
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            if found.insert(id) {
                next.extend(self.composites_of(id).map(|(t, _)| t.id));
            }
        }
        let array = |id: &Oid| self.types.get(id).map(|t| t.def.array);
        let arrays: Vec<Oid> = found.iter().filter_map(array).collect();
        found.extend(arrays);
        found
    }

    /// Relations with a column of this user's type, of arrays over it, or of a composite type that is made of it.
    pub fn relations_of_type(&self, id: Oid) -> impl Iterator<Item = &Relation> {
        let made_of = self.made_of(id);
        let of = move |c: &Column| {
            let lives = !c.dropped || c.is_hidden();
            lives && (made_of.contains(&c.type_oid) || c.domain == Some(id))
        };
        self.relations.values().filter(move |r| match r {
            Relation::Table(t) => t.def.columns.iter().any(&of),
            Relation::View(v) => v.columns.iter().any(&of),
            Relation::Sequence(_) => false,
        })
    }

    fn resolve(&self, columns: &mut [Column]) {
        for c in columns {
            if c.type_oid >= FIRST_USER_OID {
                c.user = self.type_numbered(c.type_oid);
            }
            c.rules = c.domain.and_then(|d| self.types.get(&d).cloned());
        }
    }

    fn resolved(&self, mut t: TableDef) -> TableDef {
        self.resolve(&mut t.columns);
        t
    }

    fn put(&mut self, o: Object) {
        let id = o.id();
        self.remove(id);
        let relation = match o {
            Object::Namespace(n) => {
                if n.name.starts_with(TEMPORARY) {
                    self.temporary = id;
                }
                self.namespaces.insert(id, Arc::new(n));
                return;
            }
            Object::Role(r) => {
                self.roles.insert(id, Arc::new(r));
                return;
            }
            Object::Comment {
                on, column, text, ..
            } => {
                self.comments.insert(id, (on, column, text.into()));
                return;
            }
            Object::Settings(s) => {
                self.settings.insert(id, Arc::new(s));
                return;
            }
            Object::Member(m) => {
                self.give_role(&m, true);
                if let Some(was) = self.members.insert(id, Arc::new(m)) {
                    self.give_role(&was, false);
                }
                return;
            }
            Object::Extension(e) => {
                self.extensions.insert(id, Arc::new(e));
                return;
            }
            Object::DefaultAcl(d) => {
                self.default_acls.insert(id, Arc::new(d));
                return;
            }
            Object::Type(t) => {
                self.put_type(t);
                return;
            }
            Object::Table(t) => {
                let mut t = self.resolved(t);
                t.rewrite_of = None;
                for i in t.indexes.iter().map(|i| i.id.max(i.constraint_oid)) {
                    self.next_oid = self.next_oid.max(i + 1);
                }
                let inner = t
                    .checks
                    .iter()
                    .map(|c| c.id)
                    .chain(t.foreign_keys.iter().map(|f| f.id));
                self.next_oid = inner
                    .chain([t.storage])
                    .map(|i| i + 1)
                    .fold(self.next_oid, Oid::max);
                for i in &t.indexes {
                    self.names.insert((t.namespace, i.name.clone()), i.id);
                }
                self.names.insert((t.namespace, t.name.clone()), id);
                self.count_constraints(&t, true);
                Relation::Table(Arc::new(Table::new(t)))
            }
            Object::Sequence(q) => {
                self.names.insert((q.namespace, q.name.clone()), id);
                Relation::Sequence(Arc::new(q))
            }
            Object::View(mut v) => {
                self.resolve(&mut v.columns);
                self.names.insert((v.namespace, v.name.clone()), id);
                Relation::View(Arc::new(v))
            }
        };
        self.relations.insert(id, relation);
    }

    /// The same version of the schema with other temporary objects: without `old`, with `new`. What is given to other sessions, the version
    /// and the next number, stays.
    pub fn with_temporary(&self, old: &[Object], new: &[Object]) -> Schema {
        let mut s = self.clone();
        old.iter().for_each(|o| s.remove(o.id()));
        new.iter().for_each(|o| s.put(o.clone()));
        let tables = old
            .iter()
            .chain(new)
            .filter(|o| matches!(o, Object::Table(_)));
        s.link(self, &tables.map(Object::id).collect());
        s.next_oid = self.next_oid;
        s
    }

    /// The namespace of the session's temporary objects, if it has any.
    pub fn temporary(&self) -> Option<Oid> {
        (self.temporary != 0).then_some(self.temporary)
    }

    fn remove(&mut self, id: Oid) {
        if id == self.temporary {
            self.temporary = 0;
        }
        self.namespaces.remove(&id);
        self.roles.remove(&id);
        self.comments.remove(&id);
        if let Some(t) = self.types.remove(&id) {
            let name = (t.def.namespace, t.def.name.clone());
            // A type that has taken its name is put before this one is dropped, because types come first.
            if self.type_names.get(&name) == Some(&id) {
                self.type_names.remove(&name);
            }
        }
        self.settings.remove(&id);
        if let Some(m) = self.members.remove(&id) {
            self.give_role(&m, false);
        }
        self.default_acls.remove(&id);
        self.extensions.remove(&id);
        let Some(r) = self.relations.remove(&id) else {
            return;
        };
        if let Relation::Table(t) = &r {
            self.count_constraints(&t.def, false);
            for i in &t.def.indexes {
                self.names.remove(&(t.def.namespace, i.name.clone()));
            }
        }
        let ns = match &r {
            Relation::Table(t) => t.def.namespace,
            Relation::Sequence(s) => s.namespace,
            Relation::View(v) => v.namespace,
        };
        self.names.remove(&(ns, r.name().to_owned()));
    }

    /// Corrects who references whom: of the tables that were `touched` since `before`, and of those that they reference or did.
    fn link(&mut self, before: &Schema, touched: &HashSet<Oid>) {
        let mut refs: HashMap<Oid, Vec<(Oid, usize)>> = HashMap::new();
        for id in touched {
            for f in before
                .table(*id)
                .into_iter()
                .flat_map(|t| &t.def.foreign_keys)
            {
                refs.entry(f.ref_table).or_default();
            }
            refs.entry(*id).or_default();
            let Some(t) = self.table(*id) else { continue };
            for (i, f) in t.def.foreign_keys.iter().enumerate() {
                refs.entry(f.ref_table).or_default().push((*id, i));
            }
        }
        for (id, mut wanted) in refs {
            let Some(t) = self.table(id) else { continue };
            let others = before.table(id).into_iter().flat_map(|t| &t.referenced_by);
            wanted.extend(others.filter(|r| !touched.contains(&r.0)));
            wanted.sort_unstable();
            if t.referenced_by != wanted {
                let mut new = Table::new(t.def.clone());
                new.referenced_by = wanted;
                self.relations.insert(id, Relation::Table(Arc::new(new)));
            }
        }
    }

    fn count_constraints(&mut self, t: &TableDef, there: bool) {
        let checks = t.checks.iter().map(|c| &c.name);
        let keys = t.foreign_keys.iter().map(|f| &f.name);
        let indexes = t.indexes.iter().filter(|i| i.constraint).map(|i| &i.name);
        for name in checks.chain(keys).chain(indexes) {
            let key = (t.namespace, name.clone());
            let now = self.constraints.get(&key).copied().unwrap_or(0);
            match (there, now) {
                (true, n) => drop(self.constraints.insert(key, n + 1)),
                (false, 0 | 1) => drop(self.constraints.remove(&key)),
                (false, n) => drop(self.constraints.insert(key, n - 1)),
            }
        }
    }

    /// How many constraints of this name the namespace's tables have.
    pub fn constraints_named(&self, namespace: Oid, name: &str) -> usize {
        let key = (namespace, name.to_owned());
        self.constraints.get(&key).map_or(0, |n| *n as usize)
    }

    /// Calls `f` with each table that is not the same in `later`: as it was and as it is then. What both share is not looked at.
    pub fn each_changed_table(
        &self,
        later: &Schema,
        f: &mut dyn FnMut(Oid, Option<&Arc<Table>>, Option<&Arc<Table>>),
    ) {
        fn table(r: Option<&Relation>) -> Option<&Arc<Table>> {
            match r {
                Some(Relation::Table(t)) => Some(t),
                _ => None,
            }
        }
        self.relations
            .each_change(&later.relations, &mut |id, a, b| {
                let (a, b) = (table(a), table(b));
                let same = match (a, b) {
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                    (a, b) => a.is_none() && b.is_none(),
                };
                if !same {
                    f(*id, a, b);
                }
            });
    }

    /// Everything as changes from nothing, for checkpoints and new replicas.
    pub fn dump(&self) -> Vec<Change> {
        let ns = self
            .namespaces
            .values()
            .map(|n| Object::Namespace((**n).clone()));
        let roles = self.roles.values().map(|r| Object::Role((**r).clone()));
        let rels = self.relations.values().map(|r| match r {
            Relation::Table(t) => Object::Table(t.def.clone()),
            Relation::Sequence(s) => Object::Sequence((**s).clone()),
            Relation::View(v) => Object::View((**v).clone()),
        });
        let comments = self
            .comments
            .iter()
            .map(|(&id, (on, column, text))| Object::Comment {
                id,
                on: *on,
                column: *column,
                text: text.to_string(),
            });
        let types = self.types.values().map(|t| Object::Type(t.def.clone()));
        let settings = self.settings.values();
        let settings = settings.map(|s| Object::Settings((**s).clone()));
        let mut all: Vec<Object> = ns
            .chain(roles)
            .chain(rels)
            .chain(comments)
            .chain(types)
            .chain(settings)
            .chain(self.members().map(|m| Object::Member((**m).clone())))
            .chain(
                self.default_acls()
                    .map(|d| Object::DefaultAcl((**d).clone())),
            )
            .chain(self.extensions().map(|e| Object::Extension((**e).clone())))
            .collect();
        all.sort_by_key(Object::id);
        all.into_iter().map(Change::Put).collect()
    }

    pub fn relation(&self, id: Oid) -> Option<&Relation> {
        self.relations.get(&id)
    }

    /// The relation or index of this name; an index gives its own id, which [`Schema::index`] resolves.
    pub fn lookup(&self, namespace: Oid, name: &str) -> Option<Oid> {
        self.names.get(&(namespace, name.to_owned())).copied()
    }

    pub fn table(&self, id: Oid) -> Option<&Arc<Table>> {
        match self.relations.get(&id) {
            Some(Relation::Table(t)) => Some(t),
            _ => None,
        }
    }

    /// The table that an index belongs to and the index's place in it.
    pub fn index(&self, id: Oid) -> Option<(&Arc<Table>, usize)> {
        self.tables().find_map(|t| {
            t.def
                .indexes
                .iter()
                .position(|i| i.id == id)
                .map(|p| (t, p))
        })
    }

    /// The tables that users know of.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.relations().filter_map(|r| match r {
            Relation::Table(t) => Some(t),
            _ => None,
        })
    }

    /// The relations that users know of; the hidden tables of split columns are found by their numbers alone.
    pub fn relations(&self) -> impl Iterator<Item = &Relation> {
        let hidden =
            |r: &&Relation| matches!(r, Relation::Table(t) if t.def.namespace == CANON_SPLIT);
        self.relations.values().filter(move |r| !hidden(r))
    }

    pub fn namespace(&self, id: Oid) -> Option<&Arc<Namespace>> {
        self.namespaces.get(&id)
    }

    pub fn namespace_named(&self, name: &str) -> Option<&Arc<Namespace>> {
        if name == "pg_temp" {
            return self.namespaces.get(&self.temporary);
        }
        self.namespaces.values().find(|n| n.name == name)
    }

    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.namespaces.values()
    }

    pub fn role(&self, id: Oid) -> Option<&Arc<Role>> {
        let predefined = || PREDEFINED.iter().find(|r| r.id == id);
        self.roles.get(&id).or_else(predefined)
    }

    pub fn role_named(&self, name: &str) -> Option<&Arc<Role>> {
        self.roles().find(|r| r.name == name)
    }

    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.roles.values().chain(PREDEFINED.iter())
    }

    /// Keeps `roles_given` for a membership that came, or went.
    fn give_role(&mut self, m: &Membership, came: bool) {
        let known = self.roles_given.get(&m.member);
        let mut roles = known.map_or_else(Vec::new, |r| r.to_vec());
        match came {
            true => roles.push(m.role),
            false => {
                let at = roles.iter().position(|r| *r == m.role);
                roles.swap_remove(at.expect("each membership is counted"));
            }
        }
        match roles.is_empty() {
            true => self.roles_given.remove(&m.member),
            false => self.roles_given.insert(m.member, roles.into()),
        };
    }

    /// Stored memberships of roles in roles.
    pub fn members(&self) -> impl Iterator<Item = &Arc<Membership>> {
        self.members.values()
    }

    /// All extensions.
    pub fn extensions(&self) -> impl Iterator<Item = &Arc<Extension>> {
        self.extensions.values()
    }

    /// The extension of this name.
    pub fn extension(&self, name: &str) -> Option<&Arc<Extension>> {
        self.extensions().find(|e| e.name == name)
    }

    /// What ALTER DEFAULT PRIVILEGES has said.
    pub fn default_acls(&self) -> impl Iterator<Item = &Arc<DefaultAcl>> {
        self.default_acls.values()
    }

    /// The type of this number, built-in or a user's.
    pub fn type_numbered(&self, id: Oid) -> Option<Type> {
        if id < FIRST_USER_OID {
            return Type::from_oid(id);
        }
        if let Some(t) = self.types.get(&id) {
            return Some(t.ty);
        }
        let over = self.types.values().find(|t| t.def.array == id)?;
        over.ty.array_of()
    }

    pub fn user_type(&self, id: Oid) -> Option<&Arc<UserTypeOf>> {
        self.types.get(&id)
    }

    pub fn user_type_named(&self, namespace: Oid, name: &str) -> Option<&Arc<UserTypeOf>> {
        let id = self.type_names.get(&(namespace, name.to_owned()))?;
        self.types.get(id)
    }

    pub fn user_types(&self) -> impl Iterator<Item = &Arc<UserTypeOf>> {
        self.types.values()
    }

    /// All stored settings.
    pub fn settings(&self) -> impl Iterator<Item = &Arc<StoredSettings>> {
        self.settings.values()
    }

    /// The settings stored for these sessions.
    pub fn settings_for(&self, of: For) -> Option<&Arc<StoredSettings>> {
        self.settings().find(|s| s.of == of)
    }

    /// The values stored for these sessions.
    pub fn stored(&self, of: For) -> &[(String, String)] {
        self.settings_for(of).map_or(&[], |s| &s.values)
    }

    /// (object, column or 0, text) of every COMMENT, with the comment's own number.
    pub fn comments(&self) -> impl Iterator<Item = (Oid, Oid, i32, &str)> {
        self.comments
            .iter()
            .map(|(&id, (on, col, text))| (id, *on, *col, &**text))
    }
}

/// Changes as the bytes of a log record, and back.
pub fn encode_changes(changes: &[Change]) -> Vec<u8> {
    serde_json::to_vec(changes).expect("the schema is plain data")
}

/// Reads what [`encode_changes`] wrote.
pub fn decode_changes(bytes: &[u8]) -> Option<Vec<Change>> {
    serde_json::from_slice(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(id: Oid, name: &str, refs: Option<Oid>) -> TableDef {
        let mut column = Column::new("id", Type::Int4.into());
        column.not_null = true;
        let pk = Index {
            id: id + 1,
            name: format!("{name}_pkey"),
            columns: vec![IndexColumn {
                column: 0,
                desc: false,
                nulls_first: false,
            }],
            unique: true,
            primary: true,
            constraint: true,
            constraint_oid: id + 2,
            nulls_not_distinct: false,
            predicate: None,
            include: vec![],
            deferral: Deferral::Never,
            late_primary: false,
        };
        let fk = |r| ForeignKey {
            id: id + 3,
            name: "fk".into(),
            columns: vec![0],
            ref_table: r,
            ref_index: r + 1,
            ref_columns: vec![0],
            on_delete: FkAction::NoAction,
            on_update: FkAction::NoAction,
            deferral: Deferral::Never,
            not_valid: false,
        };
        TableDef {
            id,
            storage: id,
            namespace: PUBLIC,
            name: name.into(),
            owner: BOOTSTRAP_ROLE,
            row_version: 0,
            columns: vec![column],
            indexes: vec![pk],
            checks: vec![],
            foreign_keys: refs.map(fk).into_iter().collect(),
            acl: vec![],
            rewrite_of: None,
        }
    }

    fn typed(id: Oid, name: &str, kind: TypeKind) -> Change {
        Change::Put(Object::Type(TypeDef {
            id,
            array: id + 1,
            namespace: PUBLIC,
            name: name.into(),
            owner: BOOTSTRAP_ROLE,
            acl: None,
            kind,
        }))
    }

    #[test]
    fn a_type_with_the_name_of_one_that_goes_in_the_same_transaction_keeps_it() {
        let none = || TypeKind::Enum(vec![]);
        let s = Schema::bootstrap("canon").apply(&[typed(20000, "t", none())]);
        let s = s.apply(&[Change::Drop(20000), typed(20010, "t", none())]);
        let found = s.user_type_named(PUBLIC, "t").map(|t| t.def.id);
        assert_eq!(found, Some(20010));
    }

    #[test]
    fn what_is_made_of_a_type_has_its_newest_version() {
        let labels = |n: u64| {
            let label = |rank| Label {
                id: 20005 + rank as Oid,
                rank,
                name: format!("l{rank}"),
            };
            TypeKind::Enum((0..n).map(label).collect())
        };
        let made_of = |id: Oid, parts: &[Oid]| {
            let part = |of: &Oid| AttributeDef {
                name: format!("p{of}"),
                type_oid: *of,
                typmod: -1,
                dropped: false,
            };
            TypeKind::Composite(Composite {
                relation: id + 2,
                attributes: parts.iter().map(part).collect(),
            })
        };
        let over = |base| {
            TypeKind::Domain(Domain {
                base,
                typmod: -1,
                not_null: false,
                default: None,
                checks: vec![],
            })
        };
        // Each pair is made of both of the pair before: 2^12 ways lead to the enum.
        let mut changes = vec![typed(20000, "e", labels(1)), typed(20100, "d", over(20001))];
        let mut parts = vec![20000];
        for id in (20200..21400).step_by(100) {
            for id in [id, id + 10] {
                changes.push(typed(id, &format!("c{id}"), made_of(id, &parts)));
            }
            parts = vec![id, id + 11];
        }
        let s = Schema::bootstrap("canon").apply(&changes);
        let s = s.apply(&[typed(20000, "e", labels(3))]);
        let count = |ty: Type| {
            let mut ty = ty.element().unwrap_or(ty);
            while let Some((_, a)) = ty.composite().and_then(|u| u.attributes().last()) {
                ty = a.ty.ty.element().unwrap_or(a.ty.ty);
            }
            match ty {
                Type::User(u) => u.labels.len(),
                ty => panic!("{ty:?}"),
            }
        };
        assert_eq!(count(s.user_type(20100).unwrap().ty), 3);
        assert_eq!(count(s.user_type(21310).unwrap().ty), 3);
    }

    #[test]
    fn changes_apply_link_and_round_trip() {
        let s = Schema::bootstrap("canon");
        let changes = vec![
            Change::Put(Object::Table(table(20000, "a", None))),
            Change::Put(Object::Table(table(20010, "b", Some(20000)))),
        ];
        let s = s.apply(&decode_changes(&encode_changes(&changes)).unwrap());
        assert_eq!(s.lookup(PUBLIC, "a"), Some(20000));
        assert_eq!(s.index(20001).unwrap().0.def.name, "a");
        assert_eq!(s.table(20000).unwrap().referenced_by, vec![(20010, 0)]);
        assert!(s.next_oid > 20013);
        let again = Schema::default().apply(&s.dump());
        assert_eq!(again.lookup(PUBLIC, "b_pkey"), Some(20011));
        let empty = Schema::default().apply(&Schema::bootstrap("canon").dump());
        assert_eq!(empty.next_oid, FIRST_USER_OID);
        let s = s.apply(&[Change::Drop(20010)]);
        assert_eq!(s.lookup(PUBLIC, "b"), None);
        assert_eq!(s.lookup(PUBLIC, "b_pkey"), None);
        assert!(s.table(20000).unwrap().referenced_by.is_empty());
    }
}
