//! What depends on what, and dropping: RESTRICT lists the dependents and stops, CASCADE drops them too.
//!
//! ```text
//! schema <- relations in it            table <- foreign keys of other tables, views; owned sequences go silently
//! sequence <- defaults that name it    column <- views; its indexes, CHECKs, foreign keys and sequence go silently
//! type <- columns of it, views, defaults and CHECKs that name it
//! index <- foreign keys that probe it  view <- views
//! ```
//!
//! Left out on purpose: stored dependency records. The schema is small and is searched.

use super::constraints::live;
use super::expr_text;
use super::work::Work;
use crate::catalog::{self, Resolved};
use base::schema::{CANON_SPLIT, Column, Object, Relation, TableDef};
use base::{ColumnIdx, Error, Oid, Result, SqlState};

/// Something that can be dropped, or that a drop takes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Namespace(Oid),
    Relation(Oid),
    /// A type that a user made.
    Type(Oid),
    /// Table and place of the column.
    Column(Oid, ColumnIdx),
    Default(Oid, ColumnIdx),
    /// Table and number of the index, check or foreign key.
    Index(Oid, Oid),
    Check(Oid, Oid),
    Foreign(Oid, Oid),
}

/// Whether a dependent goes without being mentioned.
#[derive(Clone, Copy, PartialEq)]
enum Link {
    Normal,
    Auto,
}

impl Work<'_> {
    /// Drops the roots. With dependents: 2BP01 with a list, or with `cascade` a NOTICE with the list. `what` is the drop's
    /// object as error messages name it (`table t`).
    pub(super) fn drop_nodes(&mut self, roots: &[Node], cascade: bool, what: &str) -> Result<()> {
        let mut doomed: Vec<Node> = roots.to_vec();
        let mut dependents: Vec<(Node, Node)> = vec![];
        let mut at = 0;
        while at < doomed.len() {
            let node = doomed[at];
            at += 1;
            for (dependent, link) in self.dependents(node) {
                if doomed.contains(&dependent) {
                    continue;
                }
                doomed.push(dependent);
                if link == Link::Normal {
                    dependents.push((dependent, node));
                }
            }
        }
        if cascade {
            self.no_parts_taken(&dependents)?;
        }
        // A constraint or default inside something that goes anyway is not worth a word.
        let inside = |n: &Node| match n {
            Node::Foreign(t, _) | Node::Default(t, _) | Node::Index(t, _) | Node::Check(t, _) => {
                doomed.contains(&Node::Relation(*t))
            }
            _ => false,
        };
        dependents.retain(|(d, _)| !inside(d));
        if !dependents.is_empty() {
            let lines: Vec<String> = match cascade {
                true => {
                    let to = dependents.iter();
                    to.map(|(d, _)| format!("drop cascades to {}", self.describe(*d)))
                        .collect()
                }
                false => {
                    let pairs = dependents.iter();
                    pairs
                        .map(|(d, on)| {
                            format!(
                                "{} depends on {}",
                                self.describe(*d),
                                self.describe_index(*on)
                            )
                        })
                        .collect()
                }
            };
            if !cascade {
                let message = match roots.len() {
                    1 => format!("cannot drop {what} because other objects depend on it"),
                    _ => {
                        "cannot drop desired object(s) because other objects depend on them".into()
                    }
                };
                return Err(Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message)
                    .detail(lines.join("\n"))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            let ok = SqlState([b'0'; 5]);
            match lines.as_slice() {
                [one] => self.notice(ok, one.clone()),
                many => {
                    let head = format!("drop cascades to {} other objects", many.len());
                    self.say("NOTICE", ok, head, many.join("\n"));
                }
            }
        }
        for node in &doomed {
            if let Node::Relation(id) = *node {
                self.not_awaited("DROP TABLE", id)?;
            }
        }
        // Parts of tables first, then whole relations, then schemas.
        let inside: Vec<Node> = doomed.iter().copied().filter(inside).collect();
        for node in doomed.iter().filter(|n| !inside.contains(n)) {
            match *node {
                Node::Namespace(_) | Node::Relation(_) | Node::Type(_) => {}
                part => self.drop_part(part)?,
            }
        }
        for node in &doomed {
            if let Node::Relation(id) = *node {
                self.drop_object(id);
            }
        }
        for node in &doomed {
            if let Node::Type(id) = *node {
                self.drop_object(id);
            }
        }
        for node in &doomed {
            if let Node::Namespace(id) = *node {
                self.drop_defaults_in(id);
                self.drop_object(id);
            }
        }
        Ok(())
    }

    /// 0A000 where a composite type would go because a type goes of which it is made: PostgreSQL takes the attribute alone.
    fn no_parts_taken(&self, dependents: &[(Node, Node)]) -> Result<()> {
        for (dependent, on) in dependents {
            let (Node::Type(over), Node::Type(part)) = (dependent, on) else {
                continue;
            };
            if let Some((t, _)) = self
                .schema
                .composites_of(*part)
                .find(|(t, _)| t.id == *over)
            {
                return Err(Error::unsupported(format!(
                    "dropping a type with CASCADE while type \"{}\" is made of it",
                    t.name
                )));
            }
        }
        Ok(())
    }

    /// Drops an object with its comments.
    pub(super) fn drop_object(&mut self, id: Oid) {
        let mut on = vec![id];
        if let Some(t) = self.schema.table(id) {
            on.extend(t.def.indexes.iter().flat_map(|i| [i.id, i.constraint_oid]));
            on.extend(t.def.checks.iter().map(|c| c.id));
            on.extend(t.def.foreign_keys.iter().map(|f| f.id));
        }
        self.drop_comments(|o, _| o != 0 && on.contains(&o));
        self.drop(id);
    }

    pub(super) fn drop_comments(&mut self, which: impl Fn(Oid, i32) -> bool) {
        let all = self.schema.comments();
        let hit: Vec<Oid> = all.filter(|c| which(c.1, c.2)).map(|c| c.0).collect();
        for id in hit {
            self.drop(id);
        }
    }

    fn drop_part(&mut self, part: Node) -> Result<()> {
        let (Node::Column(t, _)
        | Node::Default(t, _)
        | Node::Index(t, _)
        | Node::Check(t, _)
        | Node::Foreign(t, _)) = part
        else {
            return Ok(());
        };
        let Some(t) = self.schema.table(t).cloned() else {
            return Ok(());
        };
        let mut def = t.def.clone();
        match part {
            Node::Column(_, c) => {
                let column = &mut def.columns[c as usize];
                column.dropped = true;
                column.acl.clear();
                // Its type may go, and old rows have its bytes all the same.
                let bare = column.ty().ty.bare();
                if bare != column.ty().ty {
                    column.set_type(bare.into());
                }
                column.domain = None;
                column.name = format!("........pg.dropped.{}........", c + 1);
                (column.default, column.identity) = (None, None);
                (column.not_null, column.generated) = (false, false);
                super::alter::next_row_version(&mut def)?;
                self.drop_comments(|on, col| on == def.id && col == i32::from(c) + 1);
            }
            Node::Default(_, c) => def.columns[c as usize].default = None,
            Node::Index(_, i) => {
                if let Some(at) = def.indexes.iter().position(|x| x.id == i) {
                    let index = def.indexes.remove(at);
                    let mut hidden = false;
                    for k in &index.columns {
                        let c = &mut def.columns[k.column as usize];
                        if c.is_hidden() {
                            (c.generated, c.default, hidden) = (false, None, true);
                            c.name = format!("........pg.dropped.{}........", k.column + 1);
                            let bare = c.ty().ty.bare();
                            if bare != c.ty().ty {
                                c.set_type(bare.into());
                            }
                        }
                    }
                    if hidden {
                        super::alter::next_row_version(&mut def)?;
                    }
                    if index.primary {
                        // Rows were kept under this key: they move.
                        def.rewrite_of = Some(def.storage);
                        def.storage = self.oid();
                    }
                    self.drop_comments(|on, _| {
                        on == index.id || on == index.constraint_oid && on != 0
                    });
                }
            }
            Node::Check(_, k) => {
                def.checks.retain(|x| x.id != k);
                self.drop_comments(|on, _| on == k);
            }
            Node::Foreign(_, k) => {
                def.foreign_keys.retain(|x| x.id != k);
                self.drop_comments(|on, _| on == k);
            }
            Node::Namespace(_) | Node::Relation(_) | Node::Type(_) => unreachable!("parts only"),
        }
        self.put(Object::Table(def));
        Ok(())
    }

    fn dependents(&self, node: Node) -> Vec<(Node, Link)> {
        let mut found = vec![];
        match node {
            Node::Namespace(ns) => {
                let mut inside: Vec<Oid> = self
                    .schema
                    .relations()
                    .filter(|r| namespace_of(r) == ns)
                    .filter(|r| match r {
                        Relation::Sequence(s) => s.owned_by.is_none(),
                        _ => true,
                    })
                    .map(Relation::id)
                    .collect();
                inside.sort_unstable();
                found.extend(
                    inside
                        .into_iter()
                        .map(|r| (Node::Relation(r), Link::Normal)),
                );
                let types = self.schema.user_types();
                let types = types.filter(|t| t.def.namespace == ns);
                found.extend(types.map(|t| (Node::Type(t.def.id), Link::Normal)));
            }
            Node::Type(id) => self.users_of_type(id, &mut found),
            Node::Relation(id) => {
                for s in self.owned_sequences(|t, _| t == id) {
                    found.push((Node::Relation(s), Link::Auto));
                }
                for (t, f) in self.foreign_keys(|_, f| f.ref_table == id) {
                    let link = if t == id { Link::Auto } else { Link::Normal };
                    found.push((Node::Foreign(t, f), link));
                }
                for v in self.views_of(id) {
                    found.push((Node::Relation(v), Link::Normal));
                }
                if let Some(Relation::Sequence(s)) = self.schema.relation(id) {
                    for (t, c) in self.defaults_with(s.namespace, &s.name) {
                        let own = s.owned_by == Some((t, c));
                        let link = if own { Link::Auto } else { Link::Normal };
                        // A serial's own sequence can be dropped only with CASCADE, unless its column goes.
                        let link = if own { Link::Normal } else { link };
                        found.push((Node::Default(t, c), link));
                    }
                }
            }
            Node::Column(t, c) => {
                let Some(table) = self.schema.table(t) else {
                    return found;
                };
                let name = &table.def.columns[c as usize].name;
                found.push((Node::Default(t, c), Link::Auto));
                for s in self.owned_sequences(|x, y| (x, y) == (t, c)) {
                    found.push((Node::Relation(s), Link::Auto));
                }
                for i in &table.def.indexes {
                    let reads = |k: &base::schema::IndexColumn| {
                        let hidden = &table.def.columns[k.column as usize];
                        let text = hidden.default.as_deref().filter(|_| hidden.is_hidden());
                        let named = |t: &str| !expr_text::mentioned(t, &[name]).is_empty();
                        k.column == c || text.is_some_and(named)
                    };
                    if i.columns.iter().any(reads) || i.include.contains(&c) {
                        found.push((Node::Index(t, i.id), Link::Auto));
                    }
                }
                for (g, _) in super::generated::computed_from(&table.def, name) {
                    found.push((Node::Column(t, g), Link::Normal));
                }
                for k in &table.def.checks {
                    if !expr_text::mentioned(&k.expr, &[name]).is_empty() {
                        found.push((Node::Check(t, k.id), Link::Auto));
                    }
                }
                for f in &table.def.foreign_keys {
                    if f.columns.contains(&c) {
                        found.push((Node::Foreign(t, f.id), Link::Auto));
                    }
                }
                for v in self.views_of(t) {
                    if let Some(Relation::View(view)) = self.schema.relation(v)
                        && uses_column(&view.query, name)
                    {
                        found.push((Node::Relation(v), Link::Normal));
                    }
                }
            }
            Node::Index(_, i) => {
                for (t, f) in self.foreign_keys(|_, f| f.ref_index == i) {
                    found.push((Node::Foreign(t, f), Link::Normal));
                }
            }
            Node::Default(..) | Node::Check(..) | Node::Foreign(..) => {}
        }
        found
    }

    /// Columns and views of a user's type or of arrays over it, and texts that name it.
    fn users_of_type(&self, id: Oid, found: &mut Vec<(Node, Link)>) {
        let Some(t) = self.schema.user_type(id) else {
            return;
        };
        let of = |c: &base::schema::Column| {
            c.type_oid == id || c.type_oid == t.def.array || c.domain == Some(id)
        };
        // Domains over it.
        for d in self.schema.user_types() {
            if let base::schema::TypeKind::Domain(domain) = &d.def.kind
                && (domain.base == id || domain.base == t.def.array)
            {
                found.push((Node::Type(d.def.id), Link::Normal));
            }
        }
        let over = self.schema.composites_of(id);
        found.extend(over.map(|(t, _)| (Node::Type(t.id), Link::Normal)));
        let mut all = vec![];
        for r in self.schema.relations_of_type(id) {
            match r {
                // It goes with the column of its owner.
                Relation::Table(t) if t.def.namespace == CANON_SPLIT => {}
                Relation::Table(t) => {
                    let columns = live(&t.def).filter(|(_, c)| of(c));
                    all.extend(columns.map(|(i, _)| Node::Column(t.def.id, i)));
                    all.extend(over_hidden(&t.def, &of));
                }
                r => all.push(Node::Relation(r.id())),
            }
        }
        for n in self.named_in_text(&t.def.name) {
            if !all.contains(&n) {
                all.push(n);
            }
        }
        found.extend(all.into_iter().map(|n| (n, Link::Normal)));
    }

    /// Domains, defaults, checks, indexes and views whose text casts to a type of this name.
    pub(super) fn named_in_text(&self, name: &str) -> Vec<Node> {
        let mut found = vec![];
        for d in self.schema.user_types() {
            if let base::schema::TypeKind::Domain(domain) = &d.def.kind {
                let default = domain.default.as_deref();
                let checks = domain.checks.iter().map(|c| c.expr.as_str());
                if (default.into_iter().chain(checks)).any(|t| expr_text::casts_to(t, name)) {
                    found.push(Node::Type(d.def.id));
                }
            }
        }
        for r in self.schema.relations() {
            match r {
                Relation::View(v) if expr_text::casts_to(&v.query, name) => {
                    found.push(Node::Relation(v.id));
                }
                Relation::Table(t) => {
                    let defaults = live(&t.def).filter(|(_, c)| {
                        let text = c.default.as_deref();
                        text.is_some_and(|d| expr_text::casts_to(d, name))
                    });
                    found.extend(defaults.map(|(i, _)| Node::Default(t.def.id, i)));
                    let casts = |c: &Column| {
                        let text = c.default.as_deref();
                        text.is_some_and(|d| expr_text::casts_to(d, name))
                    };
                    found.extend(over_hidden(&t.def, &casts));
                    let checks = t.def.checks.iter();
                    let checks = checks.filter(|c| expr_text::casts_to(&c.expr, name));
                    found.extend(checks.map(|c| Node::Check(t.def.id, c.id)));
                }
                _ => {}
            }
        }
        found
    }

    /// Sequences owned by the columns that `which` picks, in order of number.
    pub(super) fn owned_sequences(&self, which: impl Fn(Oid, ColumnIdx) -> bool) -> Vec<Oid> {
        let mut found: Vec<Oid> = self
            .schema
            .relations()
            .filter_map(|r| match r {
                Relation::Sequence(s) if s.owned_by.is_some_and(|(t, c)| which(t, c)) => Some(s.id),
                _ => None,
            })
            .collect();
        found.sort_unstable();
        found
    }

    fn foreign_keys(
        &self,
        which: impl Fn(&TableDef, &base::schema::ForeignKey) -> bool,
    ) -> Vec<(Oid, Oid)> {
        let mut found = vec![];
        for t in self.schema.tables() {
            let hit = t.def.foreign_keys.iter().filter(|f| which(&t.def, f));
            found.extend(hit.map(|f| (t.def.id, f.id)));
        }
        found.sort_unstable();
        found
    }

    /// Views that read the relation.
    pub(super) fn views_of(&self, relation: Oid) -> Vec<Oid> {
        let mut found: Vec<Oid> = self
            .schema
            .relations()
            .filter_map(|r| match r {
                Relation::View(v) if v.depends_on.contains(&relation) => Some(v.id),
                _ => None,
            })
            .collect();
        found.sort_unstable();
        found
    }

    /// The columns whose DEFAULT takes values of this sequence.
    pub(super) fn defaults_with(&self, namespace: Oid, name: &str) -> Vec<(Oid, ColumnIdx)> {
        let full = expr_text::sequence_name(self, namespace, name);
        let literal = expr_text::quote_literal(&full);
        let mut found = vec![];
        for t in self.schema.tables() {
            for (i, c) in live(&t.def) {
                if c.default.as_ref().is_some_and(|d| d.contains(&literal)) {
                    found.push((t.def.id, i));
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// The relation's name as messages print it: qualified when the search path does not reach it.
    pub(super) fn shown(&self, id: Oid) -> String {
        match catalog::by_oid(&self.schema, id) {
            Some(r) => catalog::display_name(&self.schema, self.ctx.search_path, &r),
            None => id.to_string(),
        }
    }

    /// [`Work::describe`], but the index of a constraint is an index: it is what is depended on.
    fn describe_index(&self, node: Node) -> String {
        match node {
            Node::Index(_, i) => format!("index {}", self.shown(i)),
            other => self.describe(other),
        }
    }

    /// `table t`, `constraint c on table t` …, as DETAIL lines name things.
    pub(super) fn describe(&self, node: Node) -> String {
        let part = |t: Oid| (self.shown(t), self.schema.table(t).cloned());
        match node {
            Node::Namespace(id) => {
                let name = self.schema.namespace(id).map_or("?", |n| &n.name);
                format!("schema {name}")
            }
            Node::Relation(id) => {
                let kind = match self.schema.relation(id) {
                    Some(Relation::View(_)) => "view",
                    Some(Relation::Sequence(_)) => "sequence",
                    _ => "table",
                };
                format!("{kind} {}", self.shown(id))
            }
            Node::Type(id) => {
                let name = catalog::user_types::shown(&self.schema, self.ctx.search_path, id);
                format!("type {}", name.unwrap_or_default())
            }
            Node::Column(t, c) => {
                let (shown, table) = part(t);
                let name = table.map_or(String::new(), |t| t.def.columns[c as usize].name.clone());
                format!("column {name} of table {shown}")
            }
            Node::Default(t, c) => {
                format!("default value for {}", self.describe(Node::Column(t, c)))
            }
            Node::Index(t, i) => {
                let (shown, table) = part(t);
                let index = table.and_then(|t| t.def.indexes.iter().find(|x| x.id == i).cloned());
                match index {
                    Some(x) if x.constraint => format!("constraint {} on table {shown}", x.name),
                    _ => format!("index {}", self.shown(i)),
                }
            }
            Node::Check(t, k) | Node::Foreign(t, k) => {
                let (shown, table) = part(t);
                let name = table.and_then(|t| {
                    let checks = t.def.checks.iter().map(|c| (c.id, c.name.clone()));
                    let foreign = t.def.foreign_keys.iter().map(|f| (f.id, f.name.clone()));
                    checks.chain(foreign).find(|(id, _)| *id == k).map(|x| x.1)
                });
                format!("constraint {} on table {shown}", name.unwrap_or_default())
            }
        }
    }
}

fn namespace_of(r: &Relation) -> Oid {
    Resolved::Relation(r.clone()).namespace()
}

/// Whether the view's query may read a column of this name. A `*` may.
fn uses_column(query: &str, name: &str) -> bool {
    let star = expr_text::tokens(query)
        .iter()
        .any(|t| matches!(t, sqlparser::tokenizer::Token::Mul));
    star || !expr_text::mentioned(query, &[name]).is_empty()
}

/// The indexes over hidden columns of which this holds.
fn over_hidden(def: &TableDef, holds: &dyn Fn(&Column) -> bool) -> Vec<Node> {
    let hidden = |at: ColumnIdx| {
        let c = &def.columns[at as usize];
        c.is_hidden() && holds(c)
    };
    let indexes = def.indexes.iter();
    let over = indexes.filter(|i| i.columns.iter().any(|k| hidden(k.column)));
    over.map(|i| Node::Index(def.id, i.id)).collect()
}
