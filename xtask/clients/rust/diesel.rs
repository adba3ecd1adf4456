//! Diesel: the query builder over libpq, upserts, arrays and JSON, COPY, serializable transactions.

use diesel::pg::{CopyFormat, PgConnection};
use diesel::prelude::*;
use diesel::upsert::excluded;

diesel::table! {
    people (id) {
        id -> Integer,
        name -> Text,
        tags -> Array<Text>,
        more -> Nullable<Jsonb>,
    }
}

#[derive(Queryable, Selectable, Insertable, Debug, PartialEq, Clone)]
#[diesel(table_name = people)]
#[diesel(treat_none_as_default_value = false)]
struct Person {
    id: i32,
    name: String,
    tags: Vec<String>,
    more: Option<serde_json::Value>,
}

fn main() {
    let port = std::env::args().nth(1).unwrap();
    let mut c = PgConnection::establish(&format!("postgres://canon@127.0.0.1:{port}/canon")).unwrap();
    let made = "CREATE TABLE people (id serial PRIMARY KEY, name text NOT NULL UNIQUE, tags text[] NOT NULL, more jsonb)";
    diesel::sql_query(made).execute(&mut c).unwrap();
    let all: Vec<Person> = (1..=100)
        .map(|id| Person { id, name: format!("n{id}"), tags: vec!["x".into()], more: Some(serde_json::json!({ "id": id })) })
        .collect();
    assert_eq!(diesel::insert_into(people::table).values(&all).execute(&mut c).unwrap(), 100);
    assert_eq!(people::table.find(7).select(Person::as_select()).first(&mut c).unwrap(), all[6]);
    let upsert = diesel::insert_into(people::table)
        .values((people::id.eq(1000), people::name.eq("n1"), people::tags.eq(vec!["y"])))
        .on_conflict(people::name)
        .do_update()
        .set(people::tags.eq(excluded(people::tags)))
        .returning(people::id);
    assert_eq!(upsert.get_result::<i32>(&mut c).unwrap(), 1);
    let with_y = people::table.filter(people::tags.contains(vec!["y"])).count();
    assert_eq!(with_y.get_result::<i64>(&mut c).unwrap(), 1);
    let any = people::table.filter(people::id.eq_any([1, 2, 3])).select(people::name).for_update();
    let refused = c.build_transaction().serializable().run(|c| {
        assert_eq!(any.load::<String>(c)?.len(), 3);
        diesel::insert_into(people::table).values(&all[0]).execute(c)
    });
    assert!(matches!(refused, Err(diesel::result::Error::DatabaseError(diesel::result::DatabaseErrorKind::UniqueViolation, _))));
    let copied = diesel::copy_from(people::table)
        .from_insertable(vec![Person { id: 2000, name: "copied".into(), ..all[0].clone() }])
        .execute(&mut c);
    assert_eq!(copied.unwrap(), 1);
    let out = diesel::copy_to(people::table).load::<Person, _>(&mut c).unwrap();
    assert_eq!(out.map(|p| p.unwrap()).count(), 101);
    let text = diesel::copy_to(people::table).with_format(CopyFormat::Csv).load_raw(&mut c).unwrap();
    assert_eq!(std::io::BufRead::lines(text).count(), 101);
    diesel::delete(people::table.filter(people::id.gt(50))).execute(&mut c).unwrap();
}
