-- Rows that jobs refer to are retired, never deleted: jobs have no foreign keys (their checks
-- would lock these rows in every enqueue), so this trigger keeps the references valid.
create or replace function fairlead.refuse_delete() returns trigger language plpgsql volatile as $$
begin
    raise exception '% rows are not deleted: pause or deactivate instead', tg_table_name
        using errcode = 'restrict_violation';
end
$$;
