"""The 73 product categories: names, how often they sell, typical price and weight, and words for what is sold.

Names and rough shares are public facts about the Olist data; the words are ours. Two categories have no English name
in Olist (`pc_gamer`, `portateis_cozinha_e_preparadores_de_alimentos`); here they have one, so that the foreign key
holds.
"""

from dataclasses import dataclass
from typing import Literal, cast

Kind = Literal["elec", "linen", "wear", "shoe", "bag", "furn", "cosm", "food", "book", "disc", "home", "gear", "any"]
"""Which complaints and praises make sense: of things that switch on, sheets and towels, clothes, shoes, bags,
furniture, cosmetics, food, books, records, things for the kitchen and the walls, hard goods, and anything else."""


@dataclass(frozen=True, slots=True)
class Noun:
    """A word for a product, singular, with its gender."""

    word: str
    feminine: bool
    kind: Kind = "any"


@dataclass(frozen=True, slots=True)
class Category:
    """A product category."""

    name: str
    english: str
    weight: float
    """Items sold, on the scale of Olist's counts."""
    price: float
    """Median price in reais, before a factor common to all."""
    grams: int
    nouns: tuple[Noun, ...]


def _category(name: str, english: str, weight: float, price: float, grams: int, kind: Kind, words: str) -> Category:
    """A category; `kind` is that of the words that name no other after a colon."""
    nouns = []
    for entry in words.split(", "):
        word, _, other = entry.partition(":")
        nouns.append(Noun(word[2:], word.startswith("a "), cast(Kind, other or kind)))
    return Category(name, english, weight, price, grams, tuple(nouns))


CATEGORIES = (
    _category(
        "cama_mesa_banho", "bed_bath_table", 11115, 80, 1700, "linen",
        "o jogo de cama, o lençol, o edredom, a colcha, a manta, a toalha de mesa, o jogo de toalhas, o roupão",
    ),
    _category(
        "beleza_saude", "health_beauty", 9670, 78, 550, "cosm",
        "o hidratante, o creme, o shampoo, o kit de maquiagem, a base, o protetor solar, o sabonete, o óleo corporal",
    ),
    _category(
        "esporte_lazer", "sports_leisure", 8641, 79, 900, "gear",
        "a mochila:bag, a bola:any, a barraca:any, a lanterna:elec, o colchonete:any, a garrafa térmica:home, "
        "o par de halteres, o capacete",
    ),
    _category(
        "moveis_decoracao", "furniture_decor", 8334, 65, 1600, "furn",
        "a mesinha, a luminária:elec, o quadro:home, a prateleira, o espelho:home, a poltrona, o criado-mudo, o nicho",
    ),
    _category(
        "informatica_acessorios", "computers_accessories", 7827, 82, 500, "elec",
        "o teclado, o mouse, o roteador, o cartão de memória:any, o hub USB, o pen drive:any, "
        "o suporte de notebook:gear",
    ),
    _category(
        "utilidades_domesticas", "housewares", 6964, 60, 1500, "home",
        "a panela, a frigideira, o faqueiro, o jogo de copos, a garrafa, o varal, o conjunto de potes, a jarra",
    ),
    _category(
        "relogios_presentes", "watches_gifts", 5991, 120, 350, "gear",
        "o relógio, a pulseira:any, o relógio de parede, o relógio de pulso, o porta-retrato:home",
    ),
    _category(
        "telefonia", "telephony", 4545, 30, 200, "elec",
        "a capinha:gear, a película:any, o carregador, o fone, o suporte veicular:gear, o cabo:any",
    ),
    _category(
        "ferramentas_jardim", "garden_tools", 4347, 60, 1900, "gear",
        "a mangueira:any, a furadeira:elec, o cortador de grama:elec, a tesoura de poda, a churrasqueira:home, "
        "o vaso:home, a lona:any",
    ),
    _category(
        "automotivo", "auto", 4235, 79, 1400, "gear",
        "o tapete do carro:any, a capa de banco:any, o farol:elec, o rádio:elec, a bateria:elec, o macaco, "
        "o retrovisor, a câmera de ré:elec",
    ),
    _category(
        "brinquedos", "toys", 4117, 78, 1000, "gear",
        "a boneca, o carrinho, o quebra-cabeça:any, o jogo de tabuleiro:any, o patinete, o urso de pelúcia:any, "
        "a pista",
    ),
    _category(
        "cool_stuff", "cool_stuff", 3796, 100, 1500, "gear",
        "a caneca:home, o abajur:elec, a miniatura, o globo, o cofre, o mini drone:elec, a placa decorativa:home",
    ),
    _category(
        "perfumaria", "perfumery", 3419, 88, 350, "cosm",
        "o perfume, a colônia, o desodorante, o kit de perfume, o body splash",
    ),
    _category(
        "bebes", "baby", 3065, 85, 2500, "gear",
        "o carrinho, a cadeirinha, o berço portátil, a banheira, a babá eletrônica:elec, o mordedor:any, "
        "a mamadeira:home",
    ),
    _category(
        "eletronicos", "electronics", 2767, 35, 350, "elec",
        "o controle remoto, a caixinha de som, o adaptador, a antena:any, o conversor, o suporte de TV:gear, "
        "a tomada inteligente",
    ),
    _category(
        "papelaria", "stationery", 2517, 50, 900, "any",
        "o caderno, a agenda, o estojo, o kit de canetas, a mochila:bag, a calculadora:elec, a lousa",
    ),
    _category(
        "fashion_bolsas_e_acessorios", "fashion_bags_accessories", 2031, 55, 400, "bag",
        "a bolsa, a carteira, a mochila, o cinto:any, o lenço:any, o boné:any, a necessaire",
    ),
    _category(
        "pet_shop", "pet_shop", 1947, 70, 1800, "gear",
        "a caminha:any, o comedouro, a coleira:any, o arranhador, a casinha, a fonte de água:elec, "
        "o brinquedo para cachorro:any",
    ),
    _category(
        "moveis_escritorio", "office_furniture", 1691, 135, 11000, "furn",
        "a cadeira, a escrivaninha, a mesa, o gaveteiro, a estante, o armário",
    ),
    _category(
        "consoles_games", "consoles_games", 1137, 70, 300, "elec",
        "o controle, o volante, o headset, o carregador do controle, o cabo HDMI:any",
    ),
    _category(
        "malas_acessorios", "luggage_accessories", 1092, 110, 3500, "bag",
        "a mala, a mala de mão, a mochila, a bolsa de viagem, a frasqueira",
    ),
    _category(
        "construcao_ferramentas_construcao", "construction_tools_construction", 929, 90, 2500, "gear",
        "a torneira:home, o chuveiro:elec, a serra:elec, o nível a laser:elec, a escada, a fechadura",
    ),
    _category(
        "eletrodomesticos", "home_appliances", 771, 75, 2500, "elec",
        "o liquidificador, a batedeira, o ferro de passar, a torradeira, o secador, a chaleira elétrica",
    ),
    _category(
        "instrumentos_musicais", "musical_instruments", 680, 130, 2200, "gear",
        "o violão, o teclado:elec, a flauta, o pedal:elec, a caixa amplificada:elec, o cavaquinho",
    ),
    _category(
        "eletroportateis", "small_appliances", 679, 180, 3500, "elec",
        "a cafeteira, a fritadeira, o aspirador, o mixer, a sanduicheira, a panela elétrica",
    ),
    _category(
        "casa_construcao", "home_construction", 604, 90, 2500, "home",
        "a torneira, o chuveiro:elec, o papel de parede:any, a cuba, o registro, o rodapé:any",
    ),
    _category(
        "livros_interesse_geral", "books_general_interest", 553, 55, 600, "book",
        "o livro, o box de livros, o romance, a biografia, a enciclopédia",
    ),
    _category(
        "alimentos", "food", 510, 40, 900, "food",
        "o café, o chocolate, a granola, o azeite, a castanha, o mel",
    ),
    _category(
        "moveis_sala", "furniture_living_room", 503, 110, 8000, "furn",
        "o rack, o painel de TV, a mesa de centro, o puff, a estante",
    ),
    _category(
        "casa_conforto", "home_confort", 434, 90, 2200, "linen",
        "o travesseiro:any, a almofada, o tapete, a cortina, o protetor de colchão",
    ),
    _category(
        "bebidas", "drinks", 379, 40, 1800, "food",
        "o vinho, a cerveja, o suco, o espumante, o licor",
    ),
    _category(
        "audio", "audio", 364, 90, 700, "elec",
        "a caixa de som, o fone de ouvido, o microfone, o amplificador",
    ),
    _category(
        "market_place", "market_place", 311, 70, 1000, "any",
        "o kit, o acessório, o suporte, a maleta",
    ),
    _category(
        "construcao_ferramentas_iluminacao", "construction_tools_lights", 304, 70, 1200, "elec",
        "a luminária, o refletor, a lâmpada, a fita de LED, o lustre, o pendente",
    ),
    _category(
        "climatizacao", "air_conditioning", 297, 110, 4000, "elec",
        "o ventilador, o climatizador, o umidificador, o aquecedor",
    ),
    _category(
        "moveis_cozinha_area_de_servico_jantar_e_jardim", "kitchen_dining_laundry_garden_furniture", 281, 120, 9000,
        "furn",
        "a mesa de jantar, o armário de cozinha, a fruteira:home, a banqueta, o jogo de cadeiras",
    ),
    _category(
        "alimentos_bebidas", "food_drink", 278, 45, 1000, "food",
        "o café, o chá, o kit de temperos, a geleia, o biscoito",
    ),
    _category(
        "industria_comercio_e_negocios", "industry_commerce_and_business", 268, 90, 2500, "gear",
        "a balança:elec, a seladora:elec, o carrinho de carga, a etiquetadora, o manequim",
    ),
    _category(
        "livros_tecnicos", "books_technical", 267, 65, 700, "book",
        "o livro, a apostila, o manual, o atlas, o vade mecum",
    ),
    _category(
        "telefonia_fixa", "fixed_telephony", 264, 70, 500, "elec",
        "o telefone, o telefone sem fio, o telefone com identificador",
    ),
    _category(
        "fashion_calcados", "fashion_shoes", 262, 80, 900, "shoe",
        "o tênis, a sandália, a bota, o chinelo, o sapato, a sapatilha",
    ),
    _category(
        "construcao_ferramentas_jardim", "costruction_tools_garden", 238, 90, 2500, "gear",
        "a lavadora de alta pressão:elec, o pulverizador, a roçadeira:elec, a mangueira:any",
    ),
    _category(
        "eletrodomesticos_2", "home_appliances_2", 238, 280, 9000, "elec",
        "o fogão, o frigobar, a coifa, o forno elétrico, a adega",
    ),
    _category(
        "agro_industria_e_comercio", "agro_industry_and_commerce", 212, 130, 4000, "gear",
        "o pulverizador, a bomba:elec, o bebedouro, a cerca elétrica:elec, o motor:elec",
    ),
    _category(
        "artes", "art", 209, 50, 1000, "home",
        "o quadro, a tela, a escultura, o pôster, o painel decorativo",
    ),
    _category(
        "pcs", "computers", 203, 900, 5000, "elec",
        "o computador, o notebook, o monitor, o desktop",
    ),
    _category(
        "sinalizacao_e_seguranca", "signaling_and_security", 199, 60, 1500, "elec",
        "a câmera de segurança, o alarme, o sensor, o interfone",
    ),
    _category(
        "construcao_ferramentas_seguranca", "construction_tools_safety", 194, 90, 1000, "gear",
        "a botina:shoe, o capacete, o cadeado, o cofre, a fechadura",
    ),
    _category(
        "artigos_de_natal", "christmas_supplies", 153, 45, 1500, "home",
        "a árvore de Natal, o pisca-pisca:elec, a guirlanda:any, o presépio",
    ),
    _category(
        "fashion_roupa_masculina", "fashion_male_clothing", 132, 60, 400, "wear",
        "a camisa, a camiseta, a bermuda, a jaqueta, o moletom",
    ),
    _category(
        "fashion_underwear_e_moda_praia", "fashion_underwear_beach", 131, 50, 300, "wear",
        "o biquíni, o maiô, o sutiã, a sunga, o pijama, a cinta",
    ),
    _category(
        "moveis_quarto", "furniture_bedroom", 109, 150, 9000, "furn",
        "o guarda-roupa, a cômoda, a cabeceira, a sapateira, o berço",
    ),
    _category(
        "construcao_ferramentas_ferramentas", "costruction_tools_tools", 103, 90, 2000, "elec",
        "a furadeira, a parafusadeira, a serra tico-tico, a lixadeira, a maleta de ferramentas:gear",
    ),
    _category(
        "tablets_impressao_imagem", "tablets_printing_image", 83, 80, 600, "elec",
        "o cartucho:any, o toner:any, o suporte de tablet:gear, o leitor de código de barras",
    ),
    _category(
        "portateis_casa_forno_e_cafe", "small_appliances_home_oven_and_coffee", 76, 480, 8000, "elec",
        "o forno elétrico, a cafeteira, a máquina de café, o moedor",
    ),
    _category(
        "cine_foto", "cine_photo", 72, 80, 600, "any",
        "a bolsa de câmera:bag, o tripé:gear, a lente, o flash:elec, o cartão de memória",
    ),
    _category(
        "dvds_blu_ray", "dvds_blu_ray", 64, 60, 300, "disc",
        "o DVD, o box de DVD, o Blu-ray, a coleção",
    ),
    _category(
        "livros_importados", "books_imported", 60, 60, 800, "book",
        "o livro, o mangá, o dicionário, o box",
    ),
    _category(
        "fashion_roupa_feminina", "fashio_female_clothing", 48, 55, 400, "wear",
        "o vestido, a blusa, a saia, a calça, o casaco",
    ),
    _category(
        "artigos_de_festas", "party_supplies", 43, 55, 900, "any",
        "o painel de festa, a fantasia:wear, o kit de festa, o arco de balões",
    ),
    _category(
        "fraldas_higiene", "diapers_and_hygiene", 39, 40, 1500, "any",
        "a fralda, o lenço umedecido, o pacote de fraldas",
    ),
    _category(
        "moveis_colchao_e_estofado", "furniture_mattress_and_upholstery", 38, 110, 9000, "furn",
        "o colchão inflável:any, a poltrona, o puff",
    ),
    _category(
        "musica", "music", 38, 100, 500, "disc",
        "o CD, o disco de vinil, o box, a coletânea",
    ),
    _category(
        "flores", "flowers", 33, 35, 1000, "any",
        "o arranjo, a orquídea, o vaso de flores, a flor artificial",
    ),
    _category(
        "casa_conforto_2", "home_comfort_2", 30, 30, 1500, "linen",
        "a almofada, o tapete, a cortina, a capa de sofá",
    ),
    _category(
        "fashion_esporte", "fashion_sport", 30, 65, 400, "wear",
        "o short, a camiseta de treino, a legging, o agasalho, o top",
    ),
    _category(
        "artes_e_artesanato", "arts_and_craftmanship", 24, 35, 800, "any",
        "o kit de pintura, a tinta, o pincel, a linha de crochê",
    ),
    _category(
        "la_cuisine", "la_cuisine", 14, 120, 2500, "home",
        "a panela, a forma, a travessa, o jogo de facas",
    ),
    _category(
        "cds_dvds_musicais", "cds_dvds_musicals", 14, 50, 300, "disc",
        "o CD, o DVD do show, o box",
    ),
    _category(
        "portateis_cozinha_e_preparadores_de_alimentos", "portable_kitchen_and_food_preparers", 15, 190, 3000, "elec",
        "o processador de alimentos, a centrífuga, o espremedor, o mixer",
    ),
    _category(
        "pc_gamer", "pc_gamer", 9, 160, 3000, "elec",
        "o teclado gamer, o gabinete, o mouse gamer, o cooler",
    ),
    _category(
        "fashion_roupa_infanto_juvenil", "fashion_childrens_clothes", 8, 60, 300, "wear",
        "o vestido infantil, a camiseta infantil, o pijama infantil, o conjunto infantil",
    ),
    _category(
        "seguros_e_servicos", "security_and_services", 2, 140, 500, "any",
        "o kit de instalação, o acessório",
    ),
)  # fmt: skip

BY_NAME = {category.name: category for category in CATEGORIES}
