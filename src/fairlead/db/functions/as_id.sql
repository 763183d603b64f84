-- The id that a text is, in small or capital letters, or null: for look-ups by name or id. `id = fairlead.as_id(name)` reads
-- the index of `id`; a comparison of `id::text` would read the whole table. Written so that PostgreSQL inlines it.
create or replace function fairlead.as_id(name text) returns uuid language sql immutable parallel safe as $$
    select case when name ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then name::uuid end
$$;
