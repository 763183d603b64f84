-- A slug never changes its tenant, so cached ids of tenants stay valid.
create or replace function fairlead.refuse_rename() returns trigger language plpgsql volatile as $$
begin
    raise exception 'the % of % rows does not change', tg_argv[0], tg_table_name using errcode = 'restrict_violation';
end
$$;
