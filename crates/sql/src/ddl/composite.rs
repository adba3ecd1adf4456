//! Composite types: CREATE TYPE … AS (…), ALTER TYPE ADD, DROP, ALTER and RENAME ATTRIBUTE.
//!
//! A value has a field for each attribute that its type ever had, so adding and dropping one changes no row. Changing an attribute's type would,
//! and is refused while a column uses the composite type, as PostgreSQL refuses it. Views and rules of tables keep their text, so an attribute that
//! such a text names as `(c).name` keeps its name and stays.
//!
//! Left out on purpose (0A000): attributes of domains, COLLATE other than C, indexes over composite types.

use super::expr_text;
use super::extra::Words;
use super::user_type::check_room;
use super::work::Work;
use crate::catalog;
use base::row::MAX_COLUMNS;
use base::schema::{AttributeDef, Column, Composite, Object, Relation, TypeDef, TypeKind};
use base::{Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{
    DataType, Ident, ObjectName, UserDefinedTypeCompositeAttributeDef as NewAttribute,
};
use sqlparser::tokenizer::Token;
use std::collections::BTreeMap;

/// Most levels of composite types in a value. The quotes in its text double at each.
const MAX_NESTED: usize = 16;

/// What ALTER TYPE does to one attribute.
#[derive(Clone, Debug)]
pub enum AttributeChange {
    Add(Ident, DataType),
    Drop { name: Ident, if_exists: bool },
    SetType(Ident, DataType),
    Rename { from: Ident, to: Ident },
}

impl Words<'_> {
    /// The changes of attributes, if they come next.
    pub(super) fn attribute_changes(&mut self) -> Result<Option<Vec<AttributeChange>>> {
        let mut changes = vec![];
        loop {
            let change = if self.eat("rename attribute") {
                let from = self.ident()?;
                if !self.eat("to") {
                    return Err(self.wrong());
                }
                let to = self.ident()?;
                AttributeChange::Rename { from, to }
            } else if self.eat("add attribute") {
                let name = self.ident()?;
                AttributeChange::Add(name, self.attribute_type()?)
            } else if self.eat("drop attribute") {
                let if_exists = self.eat("if exists");
                let name = self.ident()?;
                AttributeChange::Drop { name, if_exists }
            } else if self.eat("alter attribute") {
                let name = self.ident()?;
                self.eat("set data");
                if !self.eat("type") {
                    return Err(self.wrong());
                }
                AttributeChange::SetType(name, self.attribute_type()?)
            } else if changes.is_empty() {
                return Ok(None);
            } else {
                return Err(self.wrong());
            };
            let _ = self.eat("cascade") || self.eat("restrict");
            changes.push(change);
            if !self.0.consume_token(&Token::Comma) {
                return Ok(Some(changes));
            }
        }
    }

    fn attribute_type(&mut self) -> Result<DataType> {
        let data_type = self.0.parse_data_type().map_err(|_| self.wrong())?;
        match self.at("collate") {
            true => Err(Error::unsupported("COLLATE of an attribute")),
            false => Ok(data_type),
        }
    }
}

/// The attributes of a composite type: 42P01 for another type, in PostgreSQL's words.
fn parts_of(def: &mut TypeDef) -> Result<&mut Composite> {
    match &mut def.kind {
        TypeKind::Composite(c) => Ok(c),
        TypeKind::Enum(_) | TypeKind::Domain(_) => Err(Error::new(
            SqlState::UNDEFINED_TABLE,
            format!("relation \"{}\" does not exist", def.name),
        )),
    }
}

/// How many composite types are nested in values of the type. `known` has what was found so far, by number.
fn depth(ty: Type, known: &mut BTreeMap<Oid, usize>) -> usize {
    let Some(u) = ty.element().unwrap_or(ty).composite() else {
        return 0;
    };
    if let Some(n) = known.get(&u.oid) {
        return *n;
    }
    let parts = u.attributes().map(|(_, a)| depth(a.ty.ty, known)).max();
    let n = parts.unwrap_or(0) + 1;
    known.insert(u.oid, n);
    n
}

/// Words before a `(` that call nothing and open no list.
const BEFORE_VALUES: [&str; 12] = [
    "and", "or", "not", "where", "on", "when", "then", "else", "case", "having", "select",
    "distinct",
];

/// Whether the text may hold a value of a composite type, or of an array of them: a string that begins as one, `ROW(…)` or `(…, …)`.
fn may_hold_row(text: &str) -> bool {
    let tokens = expr_text::tokens(text);
    let mut open: Vec<(bool, bool)> = vec![];
    let mut last: Option<&Token> = None;
    for t in tokens.iter().filter(|t| !matches!(t, Token::Whitespace(_))) {
        match t {
            Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s)
                if s.trim_start().starts_with(['(', '{']) =>
            {
                return true;
            }
            Token::LParen => {
                let word = last.and_then(expr_text::word);
                let word = word.filter(|w| !BEFORE_VALUES.contains(&w.as_str()));
                if word.as_deref() == Some("row") {
                    return true;
                }
                open.push((word.is_some(), false));
            }
            Token::Comma => {
                if let Some(o) = open.last_mut() {
                    o.1 = true;
                }
            }
            Token::RParen if open.pop() == Some((false, true)) => return true,
            _ => {}
        }
        last = Some(t);
    }
    false
}

/// 42703.
fn place(def: &mut TypeDef, name: &str) -> Result<usize> {
    let of = def.name.clone();
    let mut all = parts_of(def)?.attributes.iter();
    let found = all.position(|a| !a.dropped && a.name == name);
    found.ok_or_else(|| {
        let what = format!("column \"{name}\" of relation \"{of}\" does not exist");
        Error::new(SqlState::UNDEFINED_COLUMN, what)
    })
}

/// Whether the column is of a composite type, or of arrays over one.
fn of_composite(c: &Column) -> bool {
    let ty = c.ty().ty;
    ty.element().unwrap_or(ty).composite().is_some()
}

/// Whether the text has `(…).name`.
fn selects(text: &str, name: &str) -> bool {
    let tokens = expr_text::tokens(text);
    let mut solid = tokens.iter().filter(|t| !matches!(t, Token::Whitespace(_)));
    let mut last: [Option<&Token>; 2] = [None, None];
    solid.any(|t| {
        let named = expr_text::word(t).as_deref() == Some(name);
        let after = matches!(last, [Some(Token::RParen), Some(Token::Period)]);
        last = [last[1], Some(t)];
        named && after
    })
}

impl Work<'_> {
    pub(super) fn create_composite(
        &mut self,
        name: &ObjectName,
        attributes: &[NewAttribute],
    ) -> Result<String> {
        check_room()?;
        let (namespace, name) = self.target(name)?;
        self.type_must_be_free(namespace, &name)?;
        let (id, array, relation) = (self.oid(), self.oid(), self.oid());
        let mut def = TypeDef {
            id,
            array,
            namespace,
            name,
            owner: self.ctx.role,
            acl: self.type_born_with(namespace),
            kind: TypeKind::Composite(Composite {
                relation,
                attributes: vec![],
            }),
        };
        for a in attributes {
            if let Some(collation) = &a.collation {
                let name = collation.to_string();
                return Err(Error::unsupported(format!(
                    "collation {name} of an attribute"
                )));
            }
            self.add_attribute(&mut def, &a.name, &a.data_type, true)?;
        }
        self.put(Object::Type(def));
        Ok("CREATE TYPE".into())
    }

    /// An attribute's type. 42704; 42P16 for the composite type itself; 0A000 for a domain.
    fn attribute_of(&self, def: &TypeDef, name: &str, dt: &DataType) -> Result<AttributeDef> {
        if self.domain_of(dt)?.is_some() {
            return Err(Error::unsupported("an attribute of a domain"));
        }
        let ty = self.storable(dt, name)?;
        let mut inner = BTreeMap::new();
        let below = depth(ty.ty, &mut inner);
        if inner.contains_key(&def.id) {
            let what = format!(
                "composite type {} cannot be made a member of itself",
                def.name
            );
            return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, what));
        }
        if self.above(def.id, &mut BTreeMap::new()) + 1 + below > MAX_NESTED {
            let what = format!("composite types are nested at most {MAX_NESTED} deep");
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, what));
        }
        Ok(AttributeDef {
            name: name.into(),
            type_oid: ty.ty.oid(),
            typmod: ty.typmod,
            dropped: false,
        })
    }

    fn add_attribute(
        &mut self,
        def: &mut TypeDef,
        name: &Ident,
        dt: &DataType,
        new: bool,
    ) -> Result<()> {
        let name = self.name(name);
        let made = self.attribute_of(def, &name, dt)?;
        let of = def.name.clone();
        let all = &mut parts_of(def)?.attributes;
        if all.iter().any(|a| !a.dropped && a.name == name) {
            let what = match new {
                true => format!("column \"{name}\" specified more than once"),
                false => format!("column \"{name}\" of relation \"{of}\" already exists"),
            };
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, what));
        }
        if all.len() == MAX_COLUMNS {
            let what = format!("tables can have at most {MAX_COLUMNS} columns");
            return Err(Error::new(SqlState::TOO_MANY_COLUMNS, what));
        }
        all.push(made);
        Ok(())
    }

    /// 0A000 while a view or a rule of a table names the attribute.
    fn not_in_text(&self, name: &str, doing: &str) -> Result<()> {
        let found = self.schema.relations().find(|r| match r {
            Relation::View(v) => selects(&v.query, name),
            Relation::Table(t) => {
                let defaults = t.def.columns.iter().filter_map(|c| c.default.as_deref());
                let checks = t.def.checks.iter().map(|c| c.expr.as_str());
                defaults.chain(checks).any(|text| selects(text, name))
            }
            Relation::Sequence(_) => false,
        });
        match found {
            None => Ok(()),
            Some(r) => Err(Error::unsupported(format!(
                "{doing} attribute \"{name}\", which \"{}\" may name",
                r.name()
            ))),
        }
    }

    /// The composite types that are made of this one, and how many levels of them there are above it.
    fn above(&self, id: Oid, known: &mut BTreeMap<Oid, usize>) -> usize {
        if let Some(n) = known.get(&id) {
            return *n;
        }
        let over: Vec<Oid> = self.schema.composites_of(id).map(|(t, _)| t.id).collect();
        let levels = over.into_iter().map(|o| 1 + self.above(o, known)).max();
        let n = levels.unwrap_or(0);
        known.insert(id, n);
        n
    }

    /// 0A000 while a text may hold a value of the type, or of one that is made of it: it is read with as many fields as the type has.
    fn no_value_in_text(&self, def: &TypeDef) -> Result<()> {
        let mut all = BTreeMap::new();
        self.above(def.id, &mut all);
        let names = all.keys().filter_map(|id| self.schema.user_type(*id));
        let node = names.flat_map(|t| self.named_in_text(&t.def.name)).next();
        let mut found = node.map(|n| self.describe(n));
        let mut columns = vec![];
        for r in self.schema.relations_of_type(def.id) {
            if let Relation::Table(t) = r {
                let live = t.def.columns.iter().filter(|c| !c.dropped);
                let of: Vec<&Column> = live.filter(|c| of_composite(c)).collect();
                let made = of.iter().find(|c| c.default.is_some());
                let shown = made.map(|c| format!("default of column {} of {}", c.name, t.def.name));
                found = found.or(shown);
                let names: Vec<&str> = of.iter().map(|c| c.name.as_str()).collect();
                let holds = |text: &str| {
                    may_hold_row(text) && !expr_text::mentioned(text, &names).is_empty()
                };
                let computed = t.def.columns.iter().filter(|c| c.generated);
                let texts = computed.filter_map(|c| c.default.as_deref());
                if (texts.chain(t.def.checks.iter().map(|c| c.expr.as_str()))).any(holds) {
                    found = found.or(Some(format!("an expression of table {}", t.def.name)));
                }
                columns.extend(names);
            }
        }
        let view = self.schema.relations().find(|r| match r {
            Relation::View(v) => {
                may_hold_row(&v.query) && !expr_text::mentioned(&v.query, &columns).is_empty()
            }
            _ => false,
        });
        found = found.or(view.map(|v| format!("view {}", v.name())));
        match found {
            None => Ok(()),
            Some(by) => Err(Error::unsupported(format!(
                "adding or dropping an attribute of type \"{}\", a value of which may stand in {by}",
                def.name
            ))),
        }
    }

    /// 0A000, in PostgreSQL's words, while a column is of the type.
    fn not_in_use(&self, def: &TypeDef) -> Result<()> {
        let mut users = self.schema.relations_of_type(def.id);
        let table = users.find_map(|r| match r {
            Relation::Table(t) => Some(t),
            _ => None,
        });
        let Some(t) = table else {
            return Ok(());
        };
        let mut live = t.def.columns.iter().filter(|c| !c.dropped);
        let column = live.find(|c| of_composite(c));
        let what = format!(
            "cannot alter type \"{}\" because column \"{}.{}\" uses it",
            def.name,
            t.def.name,
            column.map_or("?", |c| &c.name)
        );
        Err(Error::unsupported("").message(what))
    }

    pub(super) fn alter_attributes(
        &mut self,
        name: &ObjectName,
        changes: &[AttributeChange],
    ) -> Result<String> {
        let mut def = self.own_type(name)?;
        parts_of(&mut def)?;
        for change in changes {
            match change {
                AttributeChange::Add(name, dt) => {
                    self.no_value_in_text(&def)?;
                    self.add_attribute(&mut def, name, dt, false)?;
                }
                AttributeChange::Drop { name, if_exists } => {
                    let name = catalog::fold(name);
                    let at = match place(&mut def, &name) {
                        Err(_) if *if_exists => {
                            let what = format!(
                                "column \"{name}\" of relation \"{}\" does not exist, skipping",
                                def.name
                            );
                            self.notice(SqlState([b'0'; 5]), what);
                            continue;
                        }
                        at => at?,
                    };
                    self.no_value_in_text(&def)?;
                    self.not_in_text(&name, "dropping")?;
                    let a = &mut parts_of(&mut def)?.attributes[at];
                    a.dropped = true;
                    a.name = format!("........pg.dropped.{}........", at + 1);
                }
                AttributeChange::SetType(name, dt) => {
                    let name = catalog::fold(name);
                    let at = place(&mut def, &name)?;
                    self.not_in_use(&def)?;
                    let made = self.attribute_of(&def, &name, dt)?;
                    parts_of(&mut def)?.attributes[at] = made;
                }
                AttributeChange::Rename { from, to } => {
                    let (from, to) = (catalog::fold(from), self.name(to));
                    let at = place(&mut def, &from)?;
                    if place(&mut def, &to).is_ok() {
                        let what = format!(
                            "column \"{to}\" of relation \"{}\" already exists",
                            def.name
                        );
                        return Err(Error::new(SqlState::DUPLICATE_COLUMN, what));
                    }
                    self.not_in_text(&from, "renaming")?;
                    parts_of(&mut def)?.attributes[at].name = to;
                }
            }
        }
        self.put_type(def)?;
        Ok("ALTER TYPE".into())
    }
}
