-- The steps of a JSON pointer, as #>> takes them.
create or replace function fairlead.path_of_pointer(pointer text) returns text[] language sql immutable parallel safe as $$
    select array_agg(replace(replace(part, '~1', '/'), '~0', '~') order by n)
    from regexp_split_to_table(substr(pointer, 2), '/') with ordinality as p(part, n)
$$;
