//! The functions that look things up in the catalog: definitions, visibility, privileges, sizes.
//!
//! Their signatures stand in the registry; a call arrives here by name with its values. As in PostgreSQL, a number that
//! names nothing gives NULL, a name that names nothing is an error.
//!
//! Left out on purpose: what PostgreSQL keeps and Canon does not (file nodes, statistics objects, triggers): NULL or empty.

use super::{
    DATABASE_OID, Names, Resolved, SessionFacts, by_oid, deparse, display_name, types, user_types,
};
use crate::ddl::expr_text::{parse_name, quote_ident};
use crate::ddl::privileges;
use crate::types::CatalogLookup;
use crate::types::typename;
use base::schema::{Column, Relation, Schema, Table, privilege};
use base::{Error, Oid, Result, SqlState, Type, Value};
use std::sync::Arc;

/// What the functions see.
pub struct Scope<'a> {
    pub schema: &'a Arc<Schema>,
    pub search_path: &'a Arc<[String]>,
    pub facts: &'a dyn SessionFacts,
}

/// Calls a catalog function.
pub fn call(cx: &Scope<'_>, name: &str, _types: &[Type], args: &[Value]) -> Result<Value> {
    let arg = |i: usize| args.get(i).unwrap_or(&Value::Null);
    let number = |i: usize| arg(i).as_i64().map(|n| n as Oid);
    let flag = |i: usize| arg(i).as_bool().unwrap_or(false);
    if matches!(args.first(), Some(Value::Null)) {
        return Ok(Value::Null);
    }
    Ok(match name {
        "format_type" => cx.format_type(arg(0), arg(1)),
        "pg_get_expr" => arg(0).clone(),
        "pg_get_indexdef" => cx.indexdef(number(0), arg(1).as_i64().unwrap_or(0), flag(2)),
        "pg_get_constraintdef" => cx.constraintdef(number(0), flag(1)),
        "pg_get_viewdef" | "pg_get_ruledef" => cx.viewdef(arg(0))?,
        "pg_get_userbyid" => text(match cx.schema.role(number(0).unwrap_or(0)) {
            Some(r) => r.name.clone(),
            None => format!("unknown (OID={})", number(0).unwrap_or(0)),
        }),
        "pg_my_temp_schema" => Value::Oid(cx.schema.temporary().unwrap_or(0)),
        "pg_table_is_visible" => cx.visible(number(0)),
        "pg_type_is_visible" => cx.type_visible(number(0)),
        "pg_function_is_visible"
        | "pg_operator_is_visible"
        | "pg_opclass_is_visible"
        | "pg_opfamily_is_visible"
        | "pg_collation_is_visible"
        | "pg_conversion_is_visible"
        | "pg_ts_config_is_visible"
        | "pg_ts_dict_is_visible"
        | "pg_ts_parser_is_visible"
        | "pg_ts_template_is_visible"
        | "pg_statistics_obj_is_visible" => Value::Bool(true),
        "obj_description" => cx.comment(number(0), 0, Some(false)),
        "shobj_description" => cx.comment(number(0), 0, Some(true)),
        "col_description" => cx.comment(number(0), arg(1).as_i64().unwrap_or(0) as i32, None),
        "to_regclass" => cx.quiet(|n| Ok(n.relation(&string(arg(0)))?.map(|r| r.oid())))?,
        "to_regnamespace" => cx.quiet(|n| Ok(n.namespace_oid(&string(arg(0)))))?,
        "to_regproc" | "to_regprocedure" => cx.quiet(|n| n.procedure_oid(&string(arg(0))))?,
        "to_regtype" => cx.regtype(&string(arg(0))),
        "to_regrole" => {
            let (_, name) = parse_name(&string(arg(0)))?;
            let role = cx.schema.role_named(&name);
            role.map_or(Value::Null, |r| Value::Oid(r.id))
        }
        has if has.starts_with("has_") => cx.has(has, args)?,
        "pg_has_role" => cx.has_role(args)?,
        "row_security_active" | "pg_relation_is_publishable" => Value::Bool(false),
        "pg_relation_is_updatable" => cx.updatable(number(0)),
        "pg_column_is_updatable" => cx.column_updatable(number(0), arg(1).as_i64()),
        "pg_get_serial_sequence" => cx.serial_sequence(&string(arg(0)), &string(arg(1)))?,
        "pg_sequence_last_value" => {
            let sequence = number(0).and_then(|n| cx.schema.relation(n));
            if let Some(r @ Relation::Sequence(_)) = sequence {
                let (role, either) = (
                    cx.facts.current_role(),
                    privilege::USAGE | privilege::SELECT,
                );
                if privileges::held(cx.schema, role, r) & either == 0 {
                    privileges::check_relation(cx.schema, role, r, either)?;
                }
            }
            match number(0).and_then(|s| cx.facts.sequence_state(s)) {
                Some((v, true)) => Value::Int8(v),
                _ => Value::Null,
            }
        }
        "pg_relation_size" | "pg_table_size" | "pg_total_relation_size" | "pg_indexes_size" => {
            bytes(cx.facts.relation_bytes(cx.relation_number(arg(0))?))
        }
        "pg_database_size" => bytes(cx.facts.relation_bytes(0)),
        "pg_tablespace_size" => bytes(cx.facts.relation_bytes(0)),
        "pg_relation_filenode" => match number(0).and_then(|n| cx.schema.table(n)) {
            Some(t) => Value::Oid(t.def.storage),
            None => Value::Null,
        },
        "pg_tablespace_location" => text(""),
        "pg_encoding_to_char" => text(if arg(0).as_i64() == Some(6) {
            "UTF8"
        } else {
            ""
        }),
        "pg_char_to_encoding" => {
            let utf8 =
                ["utf8", "utf-8", "unicode"].contains(&string(arg(0)).to_lowercase().as_str());
            Value::Int4(if utf8 { 6 } else { -1 })
        }
        "pg_get_function_arguments" | "pg_get_function_identity_arguments" => {
            cx.function(number(0), |e| {
                let shown = |a: &_| type_name(types::sig_oid(*a), -1);
                e.args.iter().map(shown).collect::<Vec<_>>().join(", ")
            })
        }
        "pg_get_function_result" => {
            cx.function(number(0), |e| type_name(types::sig_oid(e.ret), -1))
        }
        "pg_describe_object" => cx.describe(number(1), arg(2).as_i64().unwrap_or(0)),
        "acldefault" => {
            let kind = match arg(0) {
                Value::Char(c) => *c,
                _ => 0,
            };
            cx.default_acl(kind, number(1).unwrap_or(0))?
        }
        "role number" => Value::Oid(cx.role(arg(0))?),
        // Nothing of these kinds exists.
        "pg_get_functiondef"
        | "pg_get_triggerdef"
        | "pg_get_partkeydef"
        | "pg_get_statisticsobjdef"
        | "pg_get_statisticsobjdef_columns"
        | "pg_get_function_sqlbody"
        | "pg_get_partition_constraintdef"
        | "pg_relation_filepath"
        | "pg_get_function_arg_default" => Value::Null,
        other => return Err(Error::unsupported(format!("function {other}"))),
    })
}

fn text(s: impl AsRef<str>) -> Value {
    Value::text(s.as_ref())
}

fn string(v: &Value) -> String {
    v.as_str().unwrap_or_default().to_owned()
}

fn bytes(n: Option<u64>) -> Value {
    n.map_or(Value::Null, |n| Value::Int8(n as i64))
}

/// `format_type(oid, typmod)` of types that are not users', pseudo-types included. A modifier that says "none" (-1) keeps `bpchar` apart from `character`,
/// which would mean `character(1)`; a NULL modifier asks for the plain name.
pub fn format_type(ty: &Value, typmod: &Value) -> Value {
    let Some(ty) = ty.as_i64().map(|n| n as Oid) else {
        return Value::Null;
    };
    if ty == 0 {
        return text("-");
    }
    let given = typmod.as_i64();
    match (Type::from_oid(ty), given) {
        (Some(Type::Bpchar), Some(-1)) => text("bpchar"),
        _ => text(type_name(ty, given.unwrap_or(-1) as i32)),
    }
}

/// The name of a type by number, pseudo-types included.
fn type_name(ty: Oid, typmod: i32) -> String {
    match Type::from_oid(ty) {
        Some(t) => typename::format_type(t, typmod),
        None => types::name(ty).map_or("???".into(), quote_ident),
    }
}

/// What a function of privileges asks about.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Table,
    /// By its place.
    Column(usize),
    SomeColumn,
    Sequence,
}

impl Scope<'_> {
    fn format_type(&self, ty: &Value, typmod: &Value) -> Value {
        let id = ty.as_i64().unwrap_or(0) as Oid;
        match user_types::shown(self.schema, self.search_path, id) {
            Some(name) if user_types::is_placed(self.schema, id) => text(name),
            _ => format_type(ty, typmod),
        }
    }

    fn type_visible(&self, id: Option<Oid>) -> Value {
        let id = id.unwrap_or(0);
        Value::Bool(user_types::visible(self.schema, self.search_path, id))
    }

    fn regtype(&self, name: &str) -> Value {
        let found = user_types::number(self.schema, self.search_path, name).ok();
        let found = found.or_else(|| types::pseudo_type(name));
        found.map_or(Value::Null, Value::Oid)
    }

    /// `has_type_privilege([role,] type, 'USAGE')`: 42704, 22023.
    fn has_type(&self, args: &[Value]) -> Result<Value> {
        let (role, rest) = self.who(args, 2)?;
        if rest.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        let id = match rest[0].as_i64() {
            Some(n) => n as Oid,
            None => {
                let name = string(&rest[0]);
                user_types::number(self.schema, self.search_path, &name)?
            }
        };
        Ok(Value::Bool(match self.schema.user_type(id) {
            Some(t) => privileges::may_use_type(self.schema, role, &t.def),
            None => true,
        }))
    }

    fn names(&self) -> Names {
        Names {
            schema: self.schema.clone(),
            search_path: self.search_path.clone(),
            role: self.facts.current_role(),
        }
    }

    /// `to_reg*`: NULL for a name that means nothing.
    fn quiet(&self, f: impl FnOnce(&Names) -> Result<Option<Oid>>) -> Result<Value> {
        Ok(f(&self.names())?.map_or(Value::Null, Value::Oid))
    }

    fn visible(&self, id: Option<Oid>) -> Value {
        let Some(r) = id.and_then(|id| by_oid(self.schema, id)) else {
            return Value::Null;
        };
        let found = super::find(self.schema, self.search_path, None, r.name());
        Value::Bool(found.is_some_and(|f| f.oid() == r.oid()))
    }

    fn indexdef(&self, id: Option<Oid>, column: i64, pretty: bool) -> Value {
        let Some((t, at)) = id.and_then(|id| self.schema.index(id)) else {
            return Value::Null;
        };
        let index = &t.def.indexes[at];
        if column > 0 {
            let one = deparse::index_column(&t.def, index, column as usize - 1, (false, pretty));
            return one.map_or(text(""), text);
        }
        let path = pretty.then_some(&self.search_path[..]);
        text(deparse::index(self.schema, path, t, index))
    }

    fn constraintdef(&self, id: Option<Oid>, pretty: bool) -> Value {
        let path = Some(&self.search_path[..]);
        let found = id.and_then(|id| deparse::constraint(self.schema, path, id, pretty));
        found.map_or(Value::Null, text)
    }

    fn viewdef(&self, v: &Value) -> Result<Value> {
        let id = self.relation_number(v)?;
        Ok(match self.schema.relation(id) {
            Some(Relation::View(v)) => {
                text(deparse::view(self.schema, self.search_path, self.facts, v))
            }
            _ => Value::Null,
        })
    }

    /// The comment on an object; `shared`: only if it is (not) a role or database.
    fn comment(&self, id: Option<Oid>, column: i32, shared: Option<bool>) -> Value {
        let Some(id) = id else { return Value::Null };
        let is_shared = id == DATABASE_OID || self.schema.role(id).is_some();
        if shared.is_some_and(|s| s != is_shared) {
            return Value::Null;
        }
        let mut all = self.schema.comments();
        let found = all.find(|c| (c.1, c.2) == (id, column));
        found.map_or(Value::Null, |c| text(c.3))
    }

    /// A relation given by number or by name; 42P01.
    fn relation_number(&self, v: &Value) -> Result<Oid> {
        match v.as_i64() {
            Some(n) => Ok(n as Oid),
            None => Ok(self.relation_named(&string(v))?.oid()),
        }
    }

    fn relation_named(&self, name: &str) -> Result<Resolved> {
        self.names().relation(name)?.ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_TABLE,
                format!("relation \"{name}\" does not exist"),
            )
        })
    }

    /// A role given by number or by name; 42704.
    fn role(&self, v: &Value) -> Result<Oid> {
        if let Some(n) = v.as_i64() {
            return Ok(n as Oid);
        }
        let name = string(v);
        if name == "public" {
            return Ok(0);
        }
        let role = self.schema.role_named(&name);
        role.map(|r| r.id).ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!("role \"{name}\" does not exist"),
            )
        })
    }

    /// Splits `([role,] …)` by the number of arguments that follow the role.
    fn who<'v>(&self, args: &'v [Value], rest: usize) -> Result<(Oid, &'v [Value])> {
        match args.len() > rest {
            true => Ok((self.role(&args[0])?, &args[1..])),
            false => Ok((self.facts.current_role(), args)),
        }
    }

    /// What an object is, in words.
    fn describe(&self, id: Option<Oid>, column: i64) -> Value {
        let Some(id) = id else { return Value::Null };
        if let Some(n) = self.schema.namespace(id) {
            return text(format!("schema {}", quote_ident(&n.name)));
        }
        if let Some(r) = self.schema.role(id) {
            return text(format!("role {}", quote_ident(&r.name)));
        }
        if let Some(r) = by_oid(self.schema, id) {
            let name = display_name(self.schema, self.search_path, &r);
            let kind = match &r {
                Resolved::Relation(Relation::Table(_)) => "table",
                Resolved::Relation(Relation::View(_)) | Resolved::Virtual(_) => "view",
                Resolved::Relation(Relation::Sequence(_)) => "sequence",
                Resolved::Index(..) => "index",
            };
            let of = match &r {
                Resolved::Relation(Relation::Table(t)) if column > 0 => {
                    t.def.columns.get(column as usize - 1)
                }
                _ => None,
            };
            return text(match of {
                Some(c) => format!("column {} of {kind} {name}", quote_ident(&c.name)),
                None => format!("{kind} {name}"),
            });
        }
        for t in self.schema.tables() {
            let keys = t.def.indexes.iter().filter(|i| i.constraint_oid == id);
            let keys = keys.map(|i| &i.name);
            let checks = t.def.checks.iter().filter(|c| c.id == id).map(|c| &c.name);
            let foreign = t.def.foreign_keys.iter().filter(|f| f.id == id);
            let mut all = keys.chain(checks).chain(foreign.map(|f| &f.name));
            if let Some(name) = all.next() {
                let r = Resolved::Relation(Relation::Table(t.clone()));
                let table = display_name(self.schema, self.search_path, &r);
                return text(format!("constraint {} on table {table}", quote_ident(name)));
            }
        }
        match Type::from_oid(id) {
            Some(t) => text(format!("type {}", typename::format_type(t, -1))),
            None => Value::Null,
        }
    }

    /// What a role that owns an object of this kind may do, and all others, before anything is granted. XX000 as in PostgreSQL for a kind
    /// that is none.
    fn default_acl(&self, kind: u8, owner: Oid) -> Result<Value> {
        let (public, own) = match kind {
            b'c' => ("", ""),
            b'r' => ("", "arwdDxt"),
            b's' => ("", "rwU"),
            b'd' => ("Tc", "CTc"),
            b'f' => ("X", "X"),
            b'l' | b'T' => ("U", "U"),
            b'L' => ("", "rw"),
            b'n' => ("", "UC"),
            b't' => ("", "C"),
            b'F' | b'S' => ("", "U"),
            b'p' => ("", "sA"),
            other => {
                return Err(Error::internal(format!(
                    "unrecognized object type abbreviation: {}",
                    char::from(other)
                )));
            }
        };
        let role = self.schema.role(owner);
        let role = role.map_or_else(|| owner.to_string(), |r| quote_ident(&r.name));
        let item = |who: &str, what: &str| {
            (!what.is_empty()).then(|| text(format!("{who}={what}/{role}")))
        };
        let items = [item("", public), item(&role, own)];
        let items = items.into_iter().flatten().collect();
        Ok(Value::Array(Box::new(base::Array::one_dim(
            Type::AclItem,
            items,
        ))))
    }

    /// The functions that ask for privileges.
    fn has(&self, name: &str, args: &[Value]) -> Result<Value> {
        match name {
            "has_table_privilege" => self.has_relation(args, Kind::Table),
            "has_any_column_privilege" => self.has_relation(args, Kind::SomeColumn),
            "has_sequence_privilege" => self.has_relation(args, Kind::Sequence),
            "has_column_privilege" => self.has_column(args),
            "has_schema_privilege" => self.has_schema(args),
            "has_database_privilege" => self.has_database(args),
            "has_type_privilege" => self.has_type(args),
            "has_foreign_data_wrapper_privilege" | "has_server_privilege" => Ok(Value::Bool(false)),
            _ => Ok(Value::Bool(true)),
        }
    }

    fn has_relation(&self, args: &[Value], kind: Kind) -> Result<Value> {
        let (role, rest) = self.who(args, 2)?;
        if rest.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        let id = self.relation_number(&rest[0])?;
        let all = match kind {
            Kind::Table => TABLE,
            Kind::SomeColumn | Kind::Column(_) => COLUMN,
            Kind::Sequence => SEQUENCE,
        };
        let any = bits(&string(&rest[1]), all)?;
        let held = match by_oid(self.schema, id) {
            Some(Resolved::Relation(r)) => match kind {
                Kind::Table | Kind::Sequence => privileges::held(self.schema, role, &r),
                Kind::Column(at) => privileges::held_on_column(self.schema, role, &r, at),
                Kind::SomeColumn => privileges::held_on_some_column(self.schema, role, &r),
            },
            Some(Resolved::Virtual(_)) if privileges::is_superuser(self.schema, role) => u32::MAX,
            Some(Resolved::Virtual(v)) if privileges::is_closed(v.name()) => 0,
            Some(Resolved::Virtual(_)) => privilege::SELECT,
            _ => return Ok(Value::Null),
        };
        Ok(Value::Bool(any.iter().any(|b| held & b == *b)))
    }

    fn has_column(&self, args: &[Value]) -> Result<Value> {
        let (role, rest) = self.who(args, 3)?;
        if rest.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        let id = self.relation_number(&rest[0])?;
        let found = by_oid(self.schema, id);
        let mut at = None;
        if let (Some(Resolved::Relation(r)), Some(name)) = (&found, rest[1].as_str()) {
            let is = |c: &Column| !c.dropped && c.name == name;
            at = r.columns().iter().position(is);
            if at.is_none() && !matches!(r, Relation::Sequence(_)) {
                return Err(Error::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!(
                        "column \"{name}\" of relation \"{}\" does not exist",
                        r.name()
                    ),
                ));
            }
        }
        // By number a column that is not there is NULL.
        if let Some(n) = rest[1].as_i64().filter(|n| *n > 0) {
            let is_there = |at: usize| match &found {
                Some(Resolved::Relation(r)) if !matches!(r, Relation::Sequence(_)) => {
                    r.columns().get(at).is_some_and(|c| !c.dropped)
                }
                Some(Resolved::Virtual(v)) => at < v.columns().len(),
                _ => true,
            };
            if !is_there(n as usize - 1) {
                return Ok(Value::Null);
            }
            at = Some(n as usize - 1);
        }
        let privilege = rest[2].clone();
        let kind = Kind::Column(at.unwrap_or(usize::MAX));
        self.has_relation(&[Value::Oid(role), Value::Oid(id), privilege], kind)
    }

    fn has_schema(&self, args: &[Value]) -> Result<Value> {
        let (role, rest) = self.who(args, 2)?;
        let id = match rest[0].as_i64() {
            Some(n) => n as Oid,
            None => {
                let name = string(&rest[0]);
                let n = self.schema.namespace_named(&name);
                n.map(|n| n.id).ok_or_else(|| {
                    Error::new(
                        SqlState::INVALID_SCHEMA_NAME,
                        format!("schema \"{name}\" does not exist"),
                    )
                })?
            }
        };
        if self.schema.namespace(id).is_none() {
            return Ok(Value::Null);
        }
        let any = bits(&string(&rest[1]), SCHEMA)?;
        let held = privileges::held_on_namespace(self.schema, role, id);
        Ok(Value::Bool(any.iter().any(|b| held & b == *b)))
    }

    /// Everybody may connect; a superuser or a role with CREATEDB may create schemas.
    fn has_database(&self, args: &[Value]) -> Result<Value> {
        let (role, rest) = self.who(args, 2)?;
        if rest[0].as_i64().is_none() && string(&rest[0]) != self.facts.database() {
            return Err(Error::new(
                SqlState::INVALID_CATALOG_NAME,
                format!("database \"{}\" does not exist", string(&rest[0])),
            ));
        }
        let wanted = string(&rest[1]).to_lowercase();
        let role = self.schema.role(role);
        let creates = role.is_some_and(|r| r.superuser || r.createdb);
        let any = wanted.split(',').any(|w| match w.trim() {
            "connect" => true,
            w if w.starts_with("create") => creates,
            _ => role.is_some_and(|r| r.superuser),
        });
        Ok(Value::Bool(any))
    }

    /// `pg_has_role`: MEMBER may act as the other role, USAGE has its rights; WITH ADMIN OPTION may grant it.
    fn has_role(&self, args: &[Value]) -> Result<Value> {
        let (role, rest) = self.who(args, 2)?;
        let other = self.role(&rest[0])?;
        let asked = string(&rest[1]).to_ascii_lowercase();
        let mut any = false;
        for one in asked.split(',').map(str::trim) {
            any |= match one {
                "usage" => self.schema.has_rights_of(role, other),
                "member" => self.schema.is_member_of(role, other),
                "usage with admin option"
                | "member with admin option"
                | "usage with grant option"
                | "member with grant option" => self.schema.may_admin(role, other),
                _ => {
                    return Err(Error::new(
                        SqlState::INVALID_PARAMETER_VALUE,
                        format!("unrecognized privilege type: \"{one}\""),
                    ));
                }
            };
        }
        Ok(Value::Bool(any))
    }

    /// What may be done to a relation, in PostgreSQL's bits.
    fn updatable(&self, id: Option<Oid>) -> Value {
        const DELETE: i32 = 16;
        const ALL: i32 = DELETE + 8 + 4;
        let bits = match id.and_then(|id| self.schema.relation(id)) {
            Some(Relation::Table(_)) => ALL,
            Some(Relation::View(v)) => match self.facts.writable_columns(self.schema, v) {
                None => 0,
                Some(columns) if columns.contains(&true) => ALL,
                Some(_) => DELETE,
            },
            _ => 0,
        };
        Value::Int4(bits)
    }

    /// Whether a column may be written by UPDATE and its rows be deleted.
    fn column_updatable(&self, id: Option<Oid>, column: Option<i64>) -> Value {
        let at = column.and_then(|c| usize::try_from(c - 1).ok());
        Value::Bool(match (id.and_then(|id| self.schema.relation(id)), at) {
            (Some(Relation::Table(_)), Some(_)) => true,
            (Some(Relation::View(v)), Some(at)) => {
                let columns = self.facts.writable_columns(self.schema, v);
                columns.is_some_and(|c| c.get(at) == Some(&true))
            }
            _ => false,
        })
    }

    fn serial_sequence(&self, table: &str, column: &str) -> Result<Value> {
        let found = self.relation_named(table)?;
        if let Resolved::Relation(Relation::View(_)) | Resolved::Virtual(_) = found {
            // No sequence belongs to its columns.
            return Ok(Value::Null);
        }
        let Resolved::Relation(Relation::Table(t)) = found else {
            return Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("\"{table}\" is not a table"),
            ));
        };
        let t: &Table = &t;
        let at = t.column(column).ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_COLUMN,
                format!(
                    "column \"{column}\" of relation \"{}\" does not exist",
                    t.def.name
                ),
            )
        })?;
        let own = |r: &&Relation| match r {
            Relation::Sequence(s) => s.owned_by == Some((t.def.id, at)),
            _ => false,
        };
        Ok(match self.schema.relations().find(own) {
            Some(Relation::Sequence(s)) => {
                let ns = self.schema.namespace(s.namespace).map_or("?", |n| &n.name);
                text(format!("{}.{}", quote_ident(ns), quote_ident(&s.name)))
            }
            _ => Value::Null,
        })
    }

    fn function(
        &self,
        id: Option<Oid>,
        f: impl FnOnce(&crate::functions::signature::Entry) -> String,
    ) -> Value {
        let e = id.and_then(types::function);
        e.map_or(text(""), |e| text(f(e)))
    }
}

type Words = &'static [(&'static str, u32)];

const TABLE: Words = &[
    ("SELECT", privilege::SELECT),
    ("INSERT", privilege::INSERT),
    ("UPDATE", privilege::UPDATE),
    ("DELETE", privilege::DELETE),
    ("TRUNCATE", privilege::TRUNCATE),
    ("REFERENCES", privilege::REFERENCES),
    ("TRIGGER", privilege::TRIGGER),
];

const COLUMN: Words = &[
    ("SELECT", privilege::SELECT),
    ("INSERT", privilege::INSERT),
    ("UPDATE", privilege::UPDATE),
    ("REFERENCES", privilege::REFERENCES),
];

const SEQUENCE: Words = &[
    ("USAGE", privilege::USAGE),
    ("SELECT", privilege::SELECT),
    ("UPDATE", privilege::UPDATE),
];

const SCHEMA: Words = &[("CREATE", privilege::CREATE), ("USAGE", privilege::USAGE)];

/// The privileges of `SELECT, UPDATE`, of which one is enough; 22023. Only an owner may pass a privilege on, so WITH GRANT
/// OPTION asks for all bits.
fn bits(wanted: &str, words: Words) -> Result<Vec<u32>> {
    let one = |w: &str| {
        let w = w.trim().to_uppercase();
        let (w, grant) = match w.strip_suffix(" WITH GRANT OPTION") {
            Some(w) => (w.to_owned(), true),
            None => (w, false),
        };
        let found = words.iter().find(|(n, _)| *n == w);
        found
            .map(|(_, b)| if grant { u32::MAX } else { *b })
            .ok_or_else(|| {
                Error::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("unrecognized privilege type: \"{w}\""),
                )
            })
    };
    wanted.split(',').map(one).collect()
}
