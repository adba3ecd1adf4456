// Hibernate: the schema made, updated and validated; relations, enums, arrays, versions, locks, bulk updates, paging.
import jakarta.persistence.*;
import java.util.*;
import org.hibernate.LockMode;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

public class Hibernate {
    public enum Mood { SAD, GLAD }

    @Entity(name = "Author")
    @Table(name = "authors", indexes = @Index(columnList = "name"))
    public static class Author {
        @Id @GeneratedValue public Long id;
        @Column(length = 50, unique = true) public String name;
        @Enumerated(EnumType.STRING) public Mood mood;
        public String[] tags;
        @Version public int version;
        @OneToMany(mappedBy = "author", cascade = CascadeType.ALL, orphanRemoval = true) public List<Book> books = new ArrayList<>();
    }

    @Entity(name = "Book")
    public static class Book {
        @Id @GeneratedValue(strategy = GenerationType.IDENTITY) public Integer id;
        public String title;
        public java.time.Instant made = java.time.Instant.now();
        public java.math.BigDecimal price = java.math.BigDecimal.ONE;
        public UUID code = UUID.randomUUID();
        @ManyToOne(fetch = FetchType.LAZY) public Author author;
    }

    @Entity(name = "Special")
    @Inheritance(strategy = InheritanceType.JOINED)
    public static class Special {
        @Id @GeneratedValue public Long id;
        public int n;
    }

    @Entity(name = "MoreSpecial")
    public static class MoreSpecial extends Special {
        public int m;
    }

    static SessionFactory open(String port, String how) {
        return new Configuration()
            .setProperty("hibernate.connection.url", "jdbc:postgresql://127.0.0.1:" + port + "/canon")
            .setProperty("hibernate.connection.username", "canon")
            .setProperty("hibernate.hbm2ddl.auto", how)
            .addAnnotatedClass(Author.class).addAnnotatedClass(Book.class)
            .addAnnotatedClass(Special.class).addAnnotatedClass(MoreSpecial.class)
            .buildSessionFactory();
    }

    static void want(Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) throw new AssertionError("got " + got + ", wanted " + wanted);
    }

    public static void main(String[] args) {
        // Classes of a source file that java runs are known to its loader only.
        Thread.currentThread().setContextClassLoader(Hibernate.class.getClassLoader());
        open(args[0], "create").close();
        open(args[0], "update").close();
        SessionFactory f = open(args[0], "validate");
        f.inTransaction(s -> {
            for (String name : List.of("ada", "bob")) {
                Author a = new Author();
                a.name = name;
                a.mood = Mood.GLAD;
                a.tags = new String[] {"x", "y"};
                for (int i = 0; i < 5; i++) {
                    Book b = new Book();
                    b.title = name + i;
                    b.author = a;
                    a.books.add(b);
                }
                s.persist(a);
            }
            MoreSpecial m = new MoreSpecial();
            s.persist(m);
        });
        f.inTransaction(s -> {
            Author a = s.createQuery("from Author a join fetch a.books where a.name = 'ada'", Author.class).getSingleResult();
            want(a.books.size(), 5);
            want(List.of(a.tags), List.of("x", "y"));
            a.books.remove(0);
            s.lock(a, LockMode.PESSIMISTIC_WRITE);
            want(s.createQuery("from Book order by id", Book.class).setFirstResult(3).setMaxResults(2).list().size(), 2);
            want(s.createQuery("update Special set n = n + 1 where n = 0").executeUpdate(), 1);
            want(s.createQuery("update MoreSpecial set n = 7, m = 8").executeUpdate(), 1);
            want(s.createQuery("select rank() over (order by b.title desc) from Book b order by 1", Long.class).setMaxResults(1).getSingleResult(), 1L);
            want(s.createQuery("select count(*) from Author a where array_contains(a.tags, 'x')", Long.class).getSingleResult(), 2L);
        });
        f.inTransaction(s -> want(s.createQuery("delete from Book b where b.author.name = 'ada'").executeUpdate(), 4));
        f.close();
        open(args[0], "create-drop").close();
    }
}
