//! sqlx: its migrator under an advisory lock, describe, types, streams, COPY, a pool, notifications.

use futures_util::TryStreamExt;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Column, Connection, Executor, Row, TypeInfo};

#[derive(sqlx::Type, Debug, PartialEq)]
#[sqlx(type_name = "mood", rename_all = "lowercase")]
enum Mood {
    Sad,
    Glad,
}

#[derive(sqlx::FromRow)]
struct Thing {
    id: i32,
    mood: Mood,
    tags: Vec<String>,
    more: sqlx::types::Json<Vec<i32>>,
}

#[tokio::main]
async fn main() {
    let port = std::env::args().nth(1).unwrap();
    let place = format!("postgres://canon@127.0.0.1:{port}/canon");
    let pool = PgPoolOptions::new().max_connections(5).connect(&place).await.unwrap();
    let step = |n, sql: &'static str| Migration::new(n, sql.into(), MigrationType::Simple, sql.into(), false);
    let steps = vec![
        step(1, "CREATE TYPE mood AS ENUM ('sad', 'glad')"),
        step(2, "CREATE TABLE things (id serial PRIMARY KEY, mood mood NOT NULL, tags text[] NOT NULL, more jsonb NOT NULL)"),
    ];
    let migrator = Migrator { migrations: steps.into(), ..Migrator::DEFAULT };
    for _ in 0..2 {
        migrator.run(&pool).await.unwrap();
    }
    let insert = "INSERT INTO things (mood, tags, more) VALUES ($1, $2, $3) RETURNING id";
    for i in 0..100 {
        let asked = sqlx::query(insert).bind(Mood::Glad).bind(vec!["x", "y"]).bind(sqlx::types::Json([i]));
        assert_eq!(asked.fetch_one(&pool).await.unwrap().get::<i32, _>(0), i + 1);
    }
    let thing: Thing = sqlx::query_as("SELECT * FROM things WHERE id = $1").bind(7).fetch_one(&pool).await.unwrap();
    assert_eq!((thing.id, thing.mood, thing.tags.len(), thing.more.0[0]), (7, Mood::Glad, 2, 6));
    assert_ne!(Mood::Sad, Mood::Glad);
    let described = pool.describe("SELECT id, tags, $1::jsonb AS j FROM things").await.unwrap();
    let names: Vec<_> = described.columns().iter().map(|c| c.type_info().name().to_owned()).collect();
    assert_eq!(names, ["INT4", "TEXT[]", "JSONB"]);
    assert_eq!(described.nullable(0), Some(false));
    assert_eq!(described.columns()[0].name(), "id");
    let seen: Vec<_> = sqlx::query("SELECT id FROM things").fetch(&pool).try_collect().await.unwrap();
    assert_eq!(seen.len(), 100);
    let mut c = pool.acquire().await.unwrap();
    let refused = c
        .transaction(|t| Box::pin(async move {
            sqlx::query("SELECT * FROM things WHERE id = 1 FOR UPDATE").execute(&mut **t).await?;
            sqlx::query("INSERT INTO things SELECT 1, mood, tags, more FROM things WHERE id = 2").execute(&mut **t).await
        }))
        .await
        .unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().constraint(), Some("things_pkey"));
    let mut copy = c.copy_in_raw("COPY things (mood, tags, more) FROM STDIN").await.unwrap();
    copy.send(&b"sad\t{a}\t[1]\n"[..]).await.unwrap();
    assert_eq!(copy.finish().await.unwrap(), 1);
    let mut listener = PgListener::connect_with(&pool).await.unwrap();
    listener.listen("news").await.unwrap();
    sqlx::query("SELECT pg_notify('news', 'hello')").execute(&pool).await.unwrap();
    assert_eq!(listener.recv().await.unwrap().payload(), "hello");
}
