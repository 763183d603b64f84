-- A name that once meant one tenant never means another: whoever remembers an id stays right.
create or replace function fairlead.refuse_rename() returns trigger language plpgsql volatile as $$
begin
    raise exception 'the % of % rows does not change', tg_argv[0], tg_table_name using errcode = 'restrict_violation';
end
$$;
